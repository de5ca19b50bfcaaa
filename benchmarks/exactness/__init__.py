"""Is the update of a ragged epoch the update of the true large batch?"""
