"""For test suites: assert that two ways of computing a gradient give the same one.

>>> import torch
>>> model = torch.nn.Linear(2, 1).double()
>>> x = torch.randn(4, 2, dtype=torch.float64)
>>> def whole():
...     model(x).mean().backward()
>>> def halves():
...     for half in x.split(2):
...         (model(half).mean() / 2).backward()
>>> assert_same_gradients(model, whole, halves)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.engine.reference import relative_error, relative_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

__all__ = ["assert_same_gradients", "gradients_of"]


def gradients_of(model: nn.Module, run: Callable[[], object]) -> dict[str, Tensor | None]:
    """Run something that calls backward, and return the gradients it left, by parameter name.

    Gradients are cleared before and put back after, so the model is as it was.
    """
    held = {name: parameter.grad for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = None
    try:
        run()
        return {name: parameter.grad for name, parameter in model.named_parameters()}
    finally:
        for name, parameter in model.named_parameters():
            parameter.grad = held[name]


def assert_same_gradients(
    model: nn.Module,
    expected: Callable[[], object] | Mapping[str, Tensor | None],
    actual: Callable[[], object] | Mapping[str, Tensor | None],
    *,
    tolerance: float = 1e-12,
) -> None:
    """Raise AssertionError unless both give the same gradient for every parameter.

    Each is a function that calls backward, or the gradients by parameter name. The tolerance is a
    relative error; its default suits float64.
    """
    __tracebackhide__ = True
    left = gradients_of(model, expected) if callable(expected) else dict(expected)
    right = gradients_of(model, actual) if callable(actual) else dict(actual)
    if left.keys() != right.keys():
        different = sorted(left.keys() ^ right.keys())
        message = f"the two name different parameters: {', '.join(different)}"
        raise AssertionError(message)
    if all(gradient is None for gradient in left.values()):
        message = "the expected side left no gradient at all, so there is nothing to compare"
        raise AssertionError(message)
    errors = relative_errors(right, left)
    wrong = {name: error for name, error in errors.items() if not error <= tolerance}
    if wrong:
        rows = "\n".join(f"  {n}: {e:.3e}" for n, e in sorted(wrong.items(), key=lambda p: -p[1]))
        total = relative_error(list(right.values()), list(left.values()))
        message = (
            f"gradients differ in {len(wrong)} of {len(errors)} parameters, by {total:.3e} in all "
            f"(tolerance {tolerance:.0e}, relative):\n{rows}"
        )
        raise AssertionError(message)
