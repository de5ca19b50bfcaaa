"""The engine: windows whose update equals the whole batch's.

stepper    the user's object: parts checked, loops started, state saved
windows    the outer loop: one iteration, one update
window     the inner loop: micro-batches, backward, results
lane       one optimizer's gradients between two of its updates
close      reduce → normalise → unscale → check → clip → step → clear, once
arithmetic, scaling, states, update    the decisions, without a tensor in them
gradients, precision, feed, rng        the torch they are carried out with
reference, verify                      the obvious answer, and the comparison with it
"""
