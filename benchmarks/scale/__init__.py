"""Past the machines at hand: a window's time and bytes on many ranks, and what failures cost."""
