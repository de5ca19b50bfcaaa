"""Unknown things: what the way they are used shows them to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.execute import (
    accelerate,
    grads,
    losses,
    models,
    opaque,
    outside,
    roles,
    scalers,
    steppers,
    tensors,
)
from instep.check.execute.levels import goes_down
from instep.check.execute.things import (
    Accelerator,
    Criterion,
    Net,
    Optimizer,
    Scaler,
    Scheduler,
    Stepper,
)
from instep.check.execute.values import (
    MODELESS,
    PREPARED,
    SUM,
    UNEVEN,
    DictValue,
    ListValue,
    Unknown,
    unify,
)

if TYPE_CHECKING:
    from instep.check.execute.arguments import Call
    from instep.check.execute.machine import Machine
    from instep.check.execute.values import Thing, Value

_MAKES = ("get_", "build_", "create_", "make_", "load_", "save_", "init")
"""How functions begin that make a model, and are none."""
_SAME = frozenset({"items", "values", "keys", "copy", "to", "cuda", "float", "long", "int"})
_WRITES = frozenset(
    {"add_", "copy_", "index_add_", "index_copy_", "index_put_", "masked_scatter_", "scatter_",
     "scatter_add_"}
)  # fmt: skip
"""Methods that write a tensor into another one."""
BOUNDS = frozenset({"clamp", "clamp_min", "clip"})
"""What may keep a count from being nothing."""
_COUNTED = frozenset({"sum", "numel", "ne", "size"})
_SHOWING = frozenset(
    {"backward", "zero_grad", "scale", "unscale_", "update", "step", "parameters",
     "named_parameters", "no_sync", "train", "eval", "get_last_lr", "resize_token_embeddings"}
)  # fmt: skip
"""Methods that only things of some roles have."""
_NO_USES: frozenset[str] = frozenset()


def become(m: Machine, value: Unknown, call: Call) -> Thing | None:
    """Decide what an unknown receiver is, from the method and from how its name is used."""
    short = roles.last(value.known_as)
    made = _shown(m, value, short, call) if call.name in _SHOWING else None
    if made is None and accelerate.is_accelerator(short, call.name):
        steps = Unknown(f"{value.key}:accumulation", "accumulation_steps")
        made = Accelerator(value.known_as, accelerate.kind_of(short), steps)
    if made is None and steppers.is_windows(short, call):
        made = Stepper(value.known_as)
    if made is not None:
        made.known_as = made.known_as or value.known_as
        value.made = made
        if isinstance(made, Optimizer | Scheduler):
            made.accelerator = value.attrs.get(PREPARED)
    return made


def _shown(m: Machine, value: Unknown, short: str, call: Call) -> Thing | None:
    """Return what only something of one role has the method of."""
    uses = call.scope.module.scan.uses.get(short, _NO_USES)
    made: Thing | None = None
    match call.name:
        case "backward" if not call.args or short in roles.CRITERION:
            made = tensors.as_tensor(m, value, call.node)
        case "zero_grad":
            made = _cleared(value, short, uses)
        case "scale" | "unscale_" | "update" if _is_scaler(call.name, short, uses):
            made = Scaler(None)
        case "step":
            made = _stepping(value, short, uses)
        case "parameters" | "named_parameters" | "no_sync" | "resize_token_embeddings":
            made = _model(value, short)
        case "train" | "eval" if len(call.args) <= 1 and short != "self":
            made = _model(value, short)
        case "get_last_lr":
            made = Scheduler(None)
    return made


def _cleared(value: Unknown, short: str, uses: frozenset[str] | set[str]) -> Thing:
    """Return what `zero_grad` is called on: an optimizer, or a model."""
    if "step" not in uses and short in roles.MODEL:
        return _model(value, short)
    if not uses.isdisjoint({"parameters", "train", "eval"}) and short not in roles.OPTIMIZER:
        return _model(value, short)
    return Optimizer(None, value.hint)


def _is_scaler(method: str, short: str, uses: frozenset[str] | set[str]) -> bool:
    if method == "unscale_" or short in roles.SCALER:
        return True
    return method == "scale" and not uses.isdisjoint({"unscale_", "update"})


def _stepping(value: Unknown, short: str, uses: frozenset[str] | set[str]) -> Thing | None:
    """Return what `step` is called on, if anything tells."""
    if short in roles.SCALER:
        return Scaler(None)
    if "backward" in uses and short in roles.MODEL:
        return None
    if short in roles.SCHEDULER:
        return Scheduler(None)
    parts = (value.known_as or "").split(".")
    if "zero_grad" in uses or any(part in roles.OPTIMIZER for part in parts):
        return Optimizer(None, value.hint)
    return None


@goes_down
def _model(value: Unknown, name: str) -> Net:
    """Return the model that an unknown value is: the one it was made of, or a new one."""
    if value.hint is not None and len(value.hint) == 1:
        return next(iter(value.hint))
    made = Net(name)
    made.modeless = MODELESS in value.attrs
    whole = value.whole
    if whole is not None and whole.made is None and roles.last(whole.known_as) in roles.MODEL:
        whole.made = _model(whole, roles.last(whole.known_as))
        whole.made.known_as = whole.known_as
    if whole is not None and isinstance(whole.made, Net):
        made.join(whole.made)
    if value.given_to is not None:
        made.join(value.given_to)
    return made


def method(m: Machine, value: Unknown, call: Call) -> Value:
    """Call a method of something that stays unknown."""
    short, name = roles.last(value.known_as), call.name
    if name == "backward":
        return opaque.managed(m, short, call)
    if name == "step":
        if short not in roles.NOT_OPTIMIZER and not call.args and not call.kwargs:
            call.note(m, "opaque", what=f"{short}.step", values=None)
            m.problem(f"`{value.known_as}.step` may be an update, or not", call)
        return call.unknown(m)
    if name.endswith("_"):
        grads.changed(m, value, call)
    if name in BOUNDS and tensors.is_count(value) and tensors.is_floor(call.get(0, "min")):
        return value
    if name in _SAME or (name in _WRITES and _writes(m, value, call)):
        return value
    if name in {"add_tokens", "add_special_tokens"}:
        m.tokens += _is_new(call.first)
    if name in _COUNTED:
        return call.unknown(m, SUM if name == "sum" else "", value.drawn)
    found = _piece(m, value, call) if call.args else None
    if found is None:
        inputs = [value, *call.inputs] if value.drawn is not None else call.inputs
        found = opaque.unknown_call(m, name, call, inputs)
    return found


def _writes(m: Machine, value: Unknown, call: Call) -> bool:
    """Follow `value.copy_(tensor)`; say whether it was given a tensor with a graph."""
    given = [unify(part) for part in call.inputs]
    written = [part for part in given if isinstance(part, tensors.Tensor) and part.graph]
    for part in written:
        tensors.write_into(m, value, part, call.node)
    return bool(written)


def _is_new(tokens: Value) -> bool:
    """Say whether a tokenizer is given tokens that it need not have: not its own under another
    name, as in `{"pad_token": tokenizer.eos_token}`.
    """
    if isinstance(tokens, DictValue):
        return any(isinstance(token, str | ListValue) for token in tokens.items.values())
    return not (isinstance(tokens, ListValue) and tokens.exact and not tokens.items)


def _piece(m: Machine, value: Unknown, call: Call) -> Value:
    """Return a part of an unknown thing; None if the method gives none."""
    first = call.args[0]
    if call.name == "split" and value.drawn is not None:
        made = call.unknown(m, "", value.drawn)
        size = getattr(value.drawn, "batch", None)
        if isinstance(size, int) and isinstance(first, int) and first > 0 and size % first:
            made.attrs[UNEVEN] = True
        return made
    if call.name in {"get", "pop"} and isinstance(first, str):
        at = f".get({first!r})"
        if at not in value.attrs:
            value.attrs[at] = Unknown(value.key + at, first, value.drawn)
        return value.attrs[at]
    return None


def called(m: Machine, value: Unknown, call: Call) -> Value:
    """Call something unknown: its name and its uses say whether it is a model or a loss."""
    short = roles.last(value.known_as)
    if scalers.is_all_in_one(short, call):
        return scalers.all_in_one(m, call)
    if short in roles.CRITERION:
        kind = short if short in roles.COUPLED else None
        made = Criterion(value.known_as, kind, None, coupled=True if kind else None)
        return losses.computed(m, call.node, made, call.inputs)
    if len(short) > 1 and short[0].isupper() and not tensors.made_of(call.inputs)[0]:
        return outside.call(m, short, call)
    if not short.startswith(_MAKES) and _is_model(short, call):
        net = value.made = _model(value, short)
        net.known_as = net.known_as or value.known_as
        return models.forward(m, net, call)
    return opaque.unknown_call(m, str(value.known_as), call)


def _is_model(short: str, call: Call) -> bool:
    uses = call.scope.module.scan.uses.get(short, _NO_USES)
    is_used = not uses.isdisjoint({"train", "eval", "parameters", "zero_grad"})
    return is_used or short in roles.MODEL
