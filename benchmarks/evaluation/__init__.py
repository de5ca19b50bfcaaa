"""How often the checker is right on code that it was not written for.

    python -m benchmarks.evaluation --write         recompute docs/evaluation.md from the verdicts
    python -m benchmarks.evaluation --run FOLDER    check clones, and say what has no verdict yet

The verdicts are made by people who read every finding of severity error and warning; they and the
list of repositories with their commits are in `data`. No code of others is kept here.
"""
