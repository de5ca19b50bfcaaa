"""Fast paths behind the engine's interface: flat buffers, kernels, fused accumulation, capture.

The portable path is the reference of each: same numbers, fewer passes over memory.
"""
