"""Splits: how a batch that is given whole is cut into pieces."""
