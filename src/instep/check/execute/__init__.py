"""Abstract execution: a loop is run on values that stand for what they would be.

Nothing of the user's is imported or run. Optimizers, models, losses, loaders, scalers, schedulers,
counters and flags are followed through the source; what cannot be known is unknown, and stays so.

    entries, starting       the paths of a module, and where each begins
    program, scan           modules of the user's project, scopes, and what a look at a text tells
    machine, tables         the state of one path, and which function executes what
    lengths                 how long loaders are
    decisions, conditions   what cannot be known, and the paths that follow from it
    values, ticks, things, tensors, definitions, levels
                            what a name can stand for, and how far down it is followed
    statements, loops, iterables, items, branches, defining, imports, assignment
                            statements
    expressions, attributes, subscripts, comprehensions, numbers, comparisons, factors
                            expressions
    calls, arguments, functions, objects, methods, becoming, opaque
                            calls, from those of the project to those that cannot be followed
    optimizers, models, layers, losses, backward, grads, tensor_methods, containers
                            what a call does to a thing of a known role
    outside, constructors, schedules, torch_calls, builtin_calls, contexts, roles
                            torch and the standard library, by name
    accelerate, deepspeed, lightning, scalers
                            objects that a loop goes through instead of torch
    journal, settle, settle_updates, settle_surroundings, ids, owners
                            events as they happen, and the trace that is made of them

Functions that a table holds have the arguments of their table; those they do not need begin with
an underscore. Modules import each other in circles, so nothing but classes is used at import.
"""
