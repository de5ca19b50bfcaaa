"""Windows on one GPU, measured: the close, the micro-steps, and peers in the same run."""
