"""Methods and attributes of tensors."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from instep.check.execute import backward, factors, grads, tensors
from instep.check.execute.levels import goes_down
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Param
from instep.check.execute.values import SUM, ListValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.program import Scope
    from instep.check.execute.things import Scaler
    from instep.check.execute.values import Value

_CUT = frozenset({"detach", "data", "requires_grad"})
"""What leaves the graph behind."""
_READ = frozenset({"item", "tolist", "numpy", "shape", "size", "numel", "dim", "get_device"})
"""What is no tensor."""
_SAME = frozenset(
    {"to", "cuda", "cpu", "float", "half", "double", "bfloat16", "contiguous", "squeeze", "view",
     "reshape", "type", "type_as", "unsqueeze", "requires_grad_", "flatten"}
)  # fmt: skip
"""What leaves a loss the loss it was."""


def method(m: Machine, tensor: Tensor, call: Call) -> Value:
    """Call a method of a tensor."""
    if call.name == "zero_grad":
        # It is a model that came out of somewhere, and not what it was taken for.
        call.note(m, "opaque", what=call.name, values=None)
        return call.unknown(m)
    if call.name == "backward":
        backward.of_tensor(m, tensor, call)
        return None
    return reduced(m, tensor, call, call.inputs)


def reduced(m: Machine, tensor: Tensor, call: Call, args: list[Value]) -> Value:
    """Return what a method other than `backward` gives, or the function of that name."""
    name = call.name
    if name.endswith("_") and name not in _SAME and not name.startswith("_"):
        return _in_place(m, tensor, call, args)
    if name in _CUT:
        return cut(m, call.node, tensor)
    if name in _READ:
        return call.unknown(m)
    if name in _SAME and tensor.graph:
        return tensor
    if name in _SAME or name == "clone":
        return tensors.copy(m, tensor, call.node)
    handler = _METHODS.get(name)
    made = handler(m, tensor, call, args) if handler is not None else None
    return made if made is not None else tensors.derive(m, call.node, [tensor, *args], call.scope)


def _in_place(m: Machine, tensor: Tensor, call: Call, args: list[Value]) -> Tensor:
    """Follow a method that changes the tensor itself: `loss.div_(4)`, whoever holds it."""
    handler = _METHODS.get(call.name.removesuffix("_"))
    made = handler(m, tensor, call, args) if handler is not None else None
    if call.name == "detach_":
        made = cut(m, call.node, tensor)
    if isinstance(made, Tensor):
        tensor.parts, tensor.reduction, tensor.sums = made.parts, made.reduction, made.sums
        tensor.graph, tensor.nets = made.graph, made.nets
    elif call.name not in {"add_", "sub_"}:
        tensor.parts = None  # whatever it is now, it may have been divided
    return tensor


def _reduction(m: Machine, tensor: Tensor, call: Call, args: list[Value]) -> Tensor:
    made = tensors.copy(m, tensor, call.node)
    if args or getattr(call.node, "keywords", []):
        made.reduction = None
    elif tensor.reduction in {None, "none"} and not (tensor.raw and call.name == "mean"):
        # A loss that a model returns may have one part per device: their mean says nothing.
        made.reduction = "sum" if call.name == "sum" else "mean"
    if tensor.nets == frozenset() and not tensor.graph:
        made.known_as = SUM if call.name == "sum" else None
    return made


def _divided(m: Machine, tensor: Tensor, call: Call, args: list[Value]) -> Tensor | None:
    return factors.divide(m, call.node, tensor, args[0]) if args else None


def _multiplied(m: Machine, tensor: Tensor, call: Call, args: list[Value]) -> Tensor | None:
    return factors.multiply(m, call.node, tensor, args[0]) if args else None


def _added(m: Machine, tensor: Tensor, call: Call, args: list[Value]) -> Tensor | None:
    if args and isinstance(args[0], Tensor):
        return factors.add(m, call.node, tensor, args[0])
    return None


def _matrix(m: Machine, tensor: Tensor, call: Call, args: list[Value]) -> Value:
    if args and isinstance(args[0], Tensor):
        return factors.binary(m, call.node, ast.MatMult(), tensor, args[0], scope=call.scope)
    return None


_METHODS: dict[str, Callable[[Machine, Tensor, Call, list[Value]], Value]] = {
    "mean": _reduction,
    "sum": _reduction,
    "nanmean": _reduction,
    "div": _divided,
    "divide": _divided,
    "true_divide": _divided,
    "mul": _multiplied,
    "multiply": _multiplied,
    "add": _added,
    "matmul": _matrix,
    "mm": _matrix,
    "bmm": _matrix,
}


def cut(m: Machine, node: ast.AST, tensor: Tensor) -> Tensor:
    """Return a tensor without its graph."""
    made = tensors.copy(m, tensor, node)
    made.graph, made.nets = False, frozenset()
    made.sums = made.chain = frozenset()
    return made


def attribute(m: Machine, node: ast.AST, tensor: Tensor, name: str, scope: Scope) -> Value:
    """Return an attribute of a tensor, or of what a model returned: `output.loss`."""
    if name in _CUT:
        return cut(m, node, tensor)
    if name == "grad":
        grads.read(m, node, Param(frozenset()), scope)  # what leads to it has been told to keep it
    if name in {"item", "tolist", "numpy", "shape", "grad"}:
        return m.unknown(node, scope)
    if name in {"T", "mT", "H"}:
        return tensor
    found = tensor.attrs.get(name)
    if found is None:
        found = tensors.derive(m, node, [tensor], scope)
        if isinstance(found, Tensor):
            found.known_as = name
        tensor.attrs[name] = found
    return found


@goes_down
def scale(m: Machine, value: Value, scaler: Scaler, call: Call) -> Value:
    """Return losses multiplied by a scaler's scale."""
    if isinstance(value, tuple):
        return tuple(scale(m, item, scaler, call) for item in value)
    if isinstance(value, ListValue):
        items = [scale(m, item, scaler, call) for item in value.items]
        return ListValue(items, exact=value.exact, born=m.serial)
    tensor = tensors.as_tensor(m, value, call.node)
    # Nothing else is scaled: what looks like a number was not followed to where it is a loss.
    made = tensors.copy(m, tensor or m.tensor(None, call.node), call.node)
    made.scaled = scaler
    return made
