"""What is outside the project, by its full name: torch, its friends, and the builtins."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from instep.check.execute import numbers, roles, tensors
from instep.check.execute.machine import BUILTINS, Machine, truth
from instep.check.execute.values import (
    Accelerator,
    Context,
    Criterion,
    DictValue,
    Function,
    Iterator,
    ListValue,
    Loader,
    Native,
    Net,
    Optimizer,
    Param,
    Parameters,
    Range,
    Ref,
    Scaler,
    Scheduler,
    Tensor,
    Thing,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from instep.check.execute.program import Scope

    Handler = Callable[[Machine, ast.Call, list[Value], dict[str, Value], Scope], Value]

NATIVE: dict[str, Handler] = {}
"""Builtins by name."""
CALLS: dict[str, Handler] = {}
"""Functions and classes by the last part of their full name, for modules that are known."""
_OLD_AMP = re.compile(r"^torch\.cuda\.amp\.(autocast|GradScaler|custom_fwd|custom_bwd)$")
_LOSSES = re.compile(r"(loss|cross_entropy|nll|l1|mse|kl_div|huber)", re.IGNORECASE)
_ITERATES = frozenset({"tqdm", "trange", "track", "ProgressBar", "progress_bar", "tqdm_notebook"})


def call(
    m: Machine,
    node: ast.Call,
    path: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call something that is not the project's."""
    if path.startswith("torch.cuda.amp.") and _OLD_AMP.search(path):
        m.note("called", node, scope, api=path)
    name = path.rpartition(".")[2]
    handler = CALLS.get(name)
    if handler is not None:
        return handler(m, node, args, kwargs, scope)
    made = by_name(m, path, name, args, kwargs)
    if made is not None:
        made.node, made.module = node, scope.module
        m.note("made", node, scope, thing=made)
        return made
    if path.startswith("torch.nn.functional.") and _LOSSES.search(name):
        return functional_loss(m, node, name, args, kwargs)
    if name in {"no_grad", "inference_mode"}:
        return _no_grad(m)
    if path.startswith("torch.nn.") and name[:1].isupper():
        return _layer(m, node, name, args)
    if path.startswith(("torchvision.models", "timm.create_model", "timm.models")):
        return _model(name)
    if name in {"from_pretrained", "create_model", "get_model", "build_model"}:
        if not re.search("config|token|process|extract|feature", ast.unparse(node.func), re.I):
            return _model(name)
    return unknown_call(m, node, path, args, kwargs, scope)


def by_name(
    m: Machine, path: str, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Thing | None:
    """Return the thing that a constructor makes, judged by its name."""
    if roles.LOADER_CLASS.search(name):
        loader = Loader(None)
        size = kwargs.get("batch_size", args[1] if len(args) > 1 else None)
        loader.batch = size if isinstance(size, int) else None
        return loader
    if roles.SCHEDULER_CLASS.search(name) or (
        roles.SCHEDULER_MODULE.search(path.rpartition(".")[0]) and name[:1].isupper()
    ):
        held = [tensors.unify(value) for value in (*args, *kwargs.values())]
        optimizer = next((value for value in held if isinstance(value, Optimizer)), None)
        if optimizer is None:
            inner = next((value for value in held if isinstance(value, Scheduler)), None)
            optimizer = inner.optimizer if inner is not None else None
        if optimizer is not None or path.startswith("torch.optim.lr_scheduler"):
            return Scheduler(None, optimizer, name)
        return None if not path.startswith(("torch", "transformers")) else Scheduler(None, None, name)
    if roles.OPTIMIZER_CLASS.search(name):
        named = kwargs.get("params", kwargs.get("model", kwargs.get("optimizer")))
        first = args[0] if args else named
        inner = tensors.unify(first)
        if isinstance(inner, Optimizer):
            return inner  # a wrapper around an optimizer acts on the same parameters
        made = Optimizer(None, tensors.parameters_of(first), name)
        made.torch = path.startswith("torch.optim.")
        return made
    if roles.CRITERION_CLASS.search(name) and name[:1].isupper():
        return criterion(name, kwargs)
    return None


def criterion(name: str, kwargs: dict[str, Value]) -> Criterion:
    """Return a loss function from how it was made."""
    reduction = kwargs.get("reduction", "mean" if "reduction" not in kwargs else None)
    if kwargs.get("size_average") is False:
        reduction = "sum"
    if kwargs.get("reduce") is False:
        reduction = "none"
    ragged = True if "ignore_index" in kwargs else None
    coupled = True if roles.COUPLED.search(name) else None
    text = reduction if isinstance(reduction, str) else None
    return Criterion(None, name, text, ragged=ragged, coupled=coupled)


def functional_loss(
    m: Machine, node: ast.Call, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Tensor:
    """Return the loss that a function of torch.nn.functional gives."""
    return loss(m, node, criterion(name, kwargs), [*args, *kwargs.values()])


def loss(m: Machine, node: ast.AST, made: Criterion, inputs: list[Value]) -> Tensor:
    """Return what a loss function gives for these inputs."""
    found, nets, unknown = tensors.made_of(inputs)
    known: frozenset[Net] | None = frozenset(nets)
    for tensor in found:
        known = None if known is None or tensor.nets is None else known | tensor.nets
    result = m.tensor(known if found or nets else None, node)
    if found and not nets and not any(tensor.graph for tensor in found):
        result.graph = False
    result.reduction = made.reduction
    result.ragged = True if any("(uneven)" in value.attrs for value in unknown) else made.ragged
    result.coupled = True if made.coupled or any(tensor.coupled for tensor in found) else None
    result.kind = made.kind
    return result


def _layer(m: Machine, node: ast.Call, name: str, args: list[Value]) -> Value:
    if name in {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"}:
        return wrap(args, name)
    net = _model(name)
    if name == "Parameter":
        net.kind = "Parameter"
    net.batchnorm = True if "BatchNorm" in name else None
    _, nets, unknown = tensors.made_of(args)
    if name in {"Sequential", "ModuleList", "ModuleDict"}:
        for value in unknown:
            if value.made is None and value.drawn is None and value.hint is None:
                value.made = Net(value.known_as)
                nets.add(value.made)
        net.trainable = None
    for part in nets:
        net.trainable = net.trainable or part.trainable
        part.join(net)
        net.batchnorm = net.batchnorm or part.batchnorm
    return net


def wrap(args: list[Value], name: str) -> Value:
    """Return a model after it was wrapped for several devices: the same parameters."""
    net = tensors.unify(args[0]) if args else None
    if isinstance(net, Net):
        if name in {"DistributedDataParallel", "DDP"}:
            net.distributed = "ddp"
        elif name in {"FullyShardedDataParallel", "FSDP"}:
            net.distributed = "fsdp"
        return net
    if isinstance(net, Unknown):
        made = Net(net.known_as)
        made.distributed = "ddp" if "Distributed" in name or name == "DDP" else None
        net.made = made
        return made
    return _model(name)


def _model(name: str) -> Net:
    net = Net(None, name)
    net.written, net.training = True, True
    if name == "from_pretrained":
        net.training = False  # what is loaded by that method comes in eval mode
    net.batchnorm = True if roles.BATCHNORM_MODELS.search(name) else None
    net.trainable = True if roles.TRAINABLE.search(name) else None
    return net


def _no_grad(m: Machine) -> Context:
    def enter() -> Value:
        m.no_grad += 1
        return None

    def leave() -> None:
        m.no_grad -= 1

    return Context(enter, leave)


def unknown_call(
    m: Machine,
    node: ast.Call,
    name: str,
    args: list[Value],
    kwargs: dict[str, Value],
    scope: Scope,
) -> Value:
    """Call something of which only the name is known."""
    inputs = [*args, *kwargs.values()]
    short = roles.last(name)
    watch_opaque(m, node, short, inputs, scope)
    if roles.COUPLED.search(short):
        made = tensors.derive(m, node, inputs, scope)
        if isinstance(made, Tensor):
            made.coupled = True
        return made
    return tensors.derive(m, node, inputs, scope)


def watch_opaque(
    m: Machine, node: ast.AST, name: str, inputs: list[Value], scope: Scope
) -> None:
    """A call that takes an optimizer or a loss may do anything to their windows."""
    held = _held(inputs)
    optimizers = [value for value in held if isinstance(value, Optimizer)]
    losses = [value for value in held if isinstance(value, Tensor) and value.graph]
    benign = roles.BENIGN.search(name) is not None and "train" not in name
    is_class = name[:1].isupper()
    if optimizers and not is_class and not benign:
        m.note("opaque", node, scope, what=name, values=optimizers)
        m.problem(f"`{name}` takes an optimizer and cannot be followed", node)
    elif losses and not is_class and not benign and roles.ACTS.search(name):
        scalers = any(isinstance(value, Scaler) for value in held)
        if scalers or "backward" in name or "optim" in name or "step" in name:
            m.note("opaque", node, scope, what=name, values=None)
            m.problem(f"`{name}` takes a loss and cannot be followed", node)


def _held(inputs: list[Value]) -> list[Value]:
    found: list[Value] = []
    todo = list(inputs)
    for _ in range(60):
        if not todo:
            break
        value = tensors.unify(todo.pop())
        if isinstance(value, tuple | list):
            todo.extend(value)
        elif isinstance(value, ListValue):
            todo.extend(value.items)
        elif isinstance(value, DictValue):
            todo.extend(value.items.values())
        else:
            found.append(value)
    return found


def _len(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    from instep.check.execute import loops

    return loops.length_of(m, args[0], node, scope) if args else m.unknown(node, scope)


def _range(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    if len(args) == 1:
        return Range(0, args[0], 1)
    if len(args) >= 2:
        return Range(args[0], args[1], args[2] if len(args) > 2 else 1)
    return m.unknown(node, scope)


def _enumerate(
    m: Machine, node: ast.Call, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    return Iterator(args[0], "enumerate", start=start) if args else m.unknown(node, scope)


def _zip(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    return Iterator(tuple(args), "zip") if args else m.unknown(node, scope)


def _same(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    if not args:
        return kwargs.get("iterable", m.unknown(node, scope))
    return args[0]


def _listed(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    if not args:
        return ListValue([], born=m.serial)
    value = tensors.unify(args[0])
    if isinstance(value, tuple):
        return ListValue(list(value), born=m.serial)
    if isinstance(value, ListValue):
        return ListValue(list(value.items), exact=value.exact, born=m.serial)
    return args[0]


def _trange(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    return _range(m, node, args, kwargs, scope)


def _iter(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    if not args:
        return m.unknown(node, scope)
    return args[0] if isinstance(args[0], Iterator) else Iterator(args[0])


def _cycle(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    return Iterator(args[0], infinite=True) if args else m.unknown(node, scope)


def _islice(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    if len(args) == 2:
        limit = numbers.number(args[1])
        return Iterator(args[0], limit=limit if isinstance(limit, int) else None, infinite=True)
    return Iterator(args[0], infinite=True) if args else m.unknown(node, scope)


def _next(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    from instep.check.execute import loops

    return loops.draw(m, node, args[0], scope) if args else m.unknown(node, scope)


def _filter(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    value = tensors.unify(args[1]) if len(args) > 1 else None
    if isinstance(value, Parameters):
        return value
    return args[1] if len(args) > 1 else m.unknown(node, scope)


def _map(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    drawn = next((v.drawn for v in args if isinstance(v, Unknown) and v.drawn is not None), None)
    return m.unknown(node, scope, drawn=drawn)


def _sum(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    value = tensors.unify(args[0]) if args else None
    if isinstance(value, Tensor):
        return tensors.derive(m, node, [value], scope)
    items = list(value) if isinstance(value, tuple) else getattr(value, "items", None)
    if isinstance(value, DictValue):
        items = list(value.items.values())
    if not isinstance(items, list) or not items:
        return m.unknown(node, scope, "sum()")
    total: Value = 0
    for item in items:
        total = numbers.binary(m, node, ast.Add(), total, item, scope)
    return total


def _extreme(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    plain = [numbers.number(arg) for arg in args]
    known = [value for value in plain if value is not None]
    if len(known) == len(plain) > 1:
        smallest = getattr(node.func, "id", "") == "min"
        return min(known) if smallest else max(known)
    return tensors.derive(m, node, args, scope)


def _int(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    plain = numbers.number(args[0]) if args else None
    if plain is not None:
        return int(plain)
    value = args[0] if args else None
    return value if isinstance(value, Unknown) else m.unknown(node, scope)


def _cut(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    plain = numbers.number(args[0]) if args else None
    return float(plain) if plain is not None else m.unknown(node, scope)


def _bool(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    return truth(args[0]) if args else False


def _getattr(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    from instep.check.execute import attributes

    if len(args) >= 2 and isinstance(args[1], str):
        return attributes.get(m, node, args[0], args[1], scope)
    value = args[0] if args else None
    if isinstance(value, Ref):
        return Ref(f"{value.path}.?")
    return m.unknown(node, scope)


def _setattr(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    if len(args) == 3 and isinstance(args[1], str) and isinstance(args[0], Thing):
        args[0].attrs[args[1]] = args[2]
    return None


def _hasattr(m: Machine, node: ast.Call, args: list[Value], kwargs: Any, scope: Scope) -> Value:
    made = m.unknown(node, scope)
    made.key = f"hasattr {ast.unparse(node)}"
    return made


def _partial(
    m: Machine, node: ast.Call, args: list[Value], kwargs: dict[str, Value], scope: Scope
) -> Value:
    from instep.check.execute import calls

    if not args:
        return m.unknown(node, scope)
    callee, first = args[0], args[1:]

    def later(
        m: Machine, at: ast.Call, more: list[Value], named: dict[str, Value], inside: Scope
    ) -> Value:
        return calls.call(m, at, callee, [*first, *more], {**kwargs, **named}, inside)

    return Native(later)


NATIVE.update(
    {
        "len": _len, "range": _range, "enumerate": _enumerate, "zip": _zip, "iter": _iter,
        "next": _next, "filter": _filter, "map": _map, "sum": _sum, "min": _extreme,
        "max": _extreme, "int": _int, "float": _cut, "round": _cut, "bool": _bool, "list": _listed,
        "tuple": _listed, "set": _listed, "sorted": _listed, "reversed": _same, "getattr": _getattr,
        "setattr": _setattr, "hasattr": _hasattr,
    }
)  # fmt: skip
for _known in _ITERATES:
    CALLS[_known] = _trange if _known == "trange" else _same
CALLS.update({"cycle": _cycle, "islice": _islice, "partial": _partial})
BUILTINS["__name__"] = "__main__"


def install() -> None:
    """Make the builtins known to every scope; called once, when all modules are there."""
    for name, handler in NATIVE.items():
        BUILTINS.setdefault(name, Native(handler))
    for name in ("print", "isinstance", "str", "repr", "abs", "type", "dict", "open", "any", "all"):
        BUILTINS.setdefault(name, Ref(f"builtins.{name}"))


__all__ = ["Accelerator", "Function", "Param", "Range"]
