"""Faults on purpose: where they may happen, and that nothing is lost."""
