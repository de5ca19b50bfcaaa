"""Splits, measured: gradient error, memory and time of patches, micro-batches and two passes."""
