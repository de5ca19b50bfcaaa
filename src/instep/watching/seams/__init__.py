"""Where the watcher meets PyTorch: one module for each thing that can be hooked or replaced."""
