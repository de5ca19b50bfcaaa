"""Abstract execution: a loop is run on values that stand for what they would be.

Nothing of the user's is imported or run. Optimizers, models, losses, loaders, scalers, schedulers,
counters and flags are followed through the source; what cannot be known is unknown, and stays so.

    values      what a name can stand for
    program     modules of the user's project, and the scopes of their names
    scan        what one look at a module's text tells before anything is executed
    machine     the state of one path, and the tables of what executes which syntax
    statements, loops, branches, expressions, numbers, tensors, calls, things, torch_api, wrappers
    decisions   conditions that cannot be known, and the paths that follow from them
    journal     events as they happen, and the trace that is made of them at the end
    entries     where execution begins, and what it has covered
"""
