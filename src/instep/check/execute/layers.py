"""What a model's class is made of, read from its text: batch normalisation, and parameters."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from instep.check.execute.definitions import Class
from instep.check.execute.levels import goes_down
from instep.check.execute.roles import last
from instep.check.execute.values import Ref
from instep.trace.pattern import pattern
from instep.trace.trees import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.check.execute.program import Module, Scope
    from instep.check.execute.things import Net

_NORM = "BatchNorm"
"""Looked for first: a word is found faster than a pattern, and most texts do not have it."""
_BATCHNORM = pattern(r"\b(BatchNorm[123]d|SyncBatchNorm|BatchNorm)\b")
_IN_EACH_DIMENSION = (
    "AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "CircularPad", "ConstantPad", "Conv",
    "ConvTranspose", "LPPool", "LazyConv", "LazyConvTranspose", "MaxPool", "MaxUnpool",
    "ReflectionPad", "ReplicationPad", "ZeroPad",
)  # fmt: skip
MODELESS = frozenset(
    {"BCELoss", "BCEWithLogitsLoss", "Bilinear", "CELU", "ChannelShuffle", "CosineSimilarity",
     "CrossEntropyLoss", "ELU", "Embedding", "EmbeddingBag", "Flatten", "Fold", "GELU", "GLU",
     "GRUCell", "GroupNorm", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity",
     "KLDivLoss", "L1Loss", "LSTMCell", "LayerNorm", "LazyLinear", "LeakyReLU", "Linear",
     "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MSELoss", "Mish", "NLLLoss", "PReLU",
     "PairwiseDistance", "PixelShuffle", "PixelUnshuffle", "RMSNorm", "RNNCell", "ReLU", "ReLU6",
     "SELU", "SiLU", "Sigmoid", "SmoothL1Loss", "Softmax", "Softmax2d", "Softmin", "Softplus",
     "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold", "Unflatten", "Unfold", "Upsample",
     "UpsamplingBilinear2d", "UpsamplingNearest2d"}
    | {f"{name}{number}d" for name in _IN_EACH_DIMENSION for number in (1, 2, 3)}
)  # fmt: skip
"""Layers that do the same in train and in eval mode."""
_HOLDERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "Parameter"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
"""Layers that have a mode only where they are given a rate of dropout: by name, or as the sixth."""
_MODES = pattern(
    r"[Dd]rop|BatchNorm|InstanceNorm|SyncB|pretrained|resnet|models\.|timm|\.train\("
    r"|self\.training|from_config|hub\.load"
)
_SPOKEN = pattern(r"[A-Z]\w*(LSTM|GRU|Transformer|Attention)|LSTM|GRU|Transformer|Attention")
"""Names of layers that may have a mode, wherever they are mentioned."""
_RUNS = pattern(r"\.(backward|eval|train|step)\(|no_grad|inference_mode")
"""What a method says that trains a model, or tests it."""
_BEFORE_DROPOUT = 5  # arguments that a recurrent layer takes before it
_BARE = re.compile(
    r"^(Identity|\w*Dropout\w*|(Leaky|R|C)?ReLU6?|[CGS]?ELU|SiLU|Mish|Hard\w+|Tanh|(Log)?Sigmoid"
    r"|(Log)?Soft(max\w*|min|plus)|Flatten|Unflatten|\w*Pool\dd|\w*Pad\dd|Upsample|PixelShuffle)$"
)
"""Layers that have no parameters."""
_EVALUATED = ("transformers.", "pytorch_transformers.")
_TRAINABLE = pattern(
    r"\b(Linear|Conv[123]d|ConvTranspose[123]d|Embedding|LSTM|GRU|RNN|Transformer\w*|Parameter"
    r"|MultiheadAttention|resnet\w*|from_pretrained)\("
)

_GRAD = "requires_grad"
"""The next two are about it: a word is looked for faster than a pattern."""
_FREEZES = pattern(r"requires_grad\s*=(?!=|\s*True)|requires_grad_\((?!True)")
"""What a class says that keeps some of its own parameters, or all of them, as they are."""
_FROZEN_ODDLY = pattern(
    r"setattr\([^\n]*requires_grad|\.(weight|bias)\.requires_grad\s*="
    r"|lambda \w+: \w+\.requires_grad_|requires_grad\s*=[^\n=]* in "
)
_PARTS = pattern(r"\.(children|modules)\(\)|\.apply\(")
"""Ways to keep parameters as they are that are not followed."""
_WRITTEN = pattern(r"Parameter\(\s*(torch\.)?(Float)?[Tt]ensor\(\s*\[\s*\[")
"""A filter whose numbers are written in the source, and may be meant to stay what they are."""


def of_class(cls: Class) -> tuple[bool | None, bool | None]:
    """Say whether a model's class uses batch normalisation and has parameters; None: not seen."""
    known = cls.scope.module.layers
    if cls.code not in known:
        text = cls.scope.module.text(cls.code)
        spoken = _TRAINABLE.search(text, text.find(":"))  # not by its name
        made = spoken is not None and _makes_trainable(cls.code)
        freezes = made and _GRAD in text and _FREEZES.search(text) is not None
        freezes = freezes or (made and _WRITTEN.search(text) is not None)
        trainable = True if made and not freezes else None
        known[cls.code] = (True if _has_batchnorm(cls, text) else None, trainable)
    return known[cls.code]


def _makes_trainable(code: ast.ClassDef) -> bool:
    """Say whether a class calls what has parameters, and not only speaks of it."""
    calls = (part for part in walk(code) if isinstance(part, ast.Call))
    return any(_TRAINABLE.match(f"{_called(call)}(") for call in calls)


def may_train(net: Net) -> bool | None:
    """Say whether a model has parameters that nobody keeps as they are; None: that is unclear."""
    module = net.module
    if module is not None and module.read(_has_frozen, module.tree):
        return None
    return net.trainable


def _has_frozen(_tree: ast.Module, module: Module) -> bool:
    text = module.unit.text
    if _GRAD not in text:
        return False
    if _FROZEN_ODDLY.search(text):
        return True
    return _FREEZES.search(text) is not None and _PARTS.search(text) is not None


@goes_down
def is_modeless(cls: Class) -> bool:
    """Say whether a model surely does the same in train and in eval mode: nothing in its class is
    about modes, and all of its layers are known.
    """
    known = cls.scope.module.modeless
    if cls.code not in known:
        known[cls.code] = False  # while it is asked: one that is made of itself
        known[cls.code] = [last(name) for name in cls.outside()] == ["Module"] and all(
            _is_made_of_modeless(base) for base in cls.mro()
        )
    return known[cls.code]


def _is_made_of_modeless(cls: Class) -> bool:
    module = cls.scope.module
    body = _modelled(cls.code, module)
    if any(_MODES.search(module.text(statement)) for statement in body):
        return False
    parts = [part for statement in body for part in walk(statement)]
    called = [part for part in parts if isinstance(part, ast.Call)]
    made = {_called(call) for call in called if not _is_own(call)}
    made = {name for name in made if name[:1].isupper()}
    for name in made.union(_spoken(parts)) - MODELESS - _HOLDERS - {cls.known_as}:
        if name in _RECURRENT:
            if any(_called(call) == name and _may_drop(call) for call in called):
                return False
        elif not _is_modeless_class(cls.scope, name):
            return False
    return True


def _modelled(code: ast.ClassDef, module: Module) -> list[ast.stmt]:
    """Return what of a class is the model: not methods that train or test it, which `forward` and
    the making of it have no part in.
    """
    methods = {part.name: part for part in code.body if isinstance(part, ast.FunctionDef)}
    if "forward" not in methods:
        return code.body
    needed: list[str] = [name for name in ("__init__", "forward") if name in methods]
    for name in needed:
        for part in walk(methods[name]):
            used = getattr(part, "attr", "")
            if used in methods and used not in needed:
                needed.append(used)
    return [
        part
        for part in code.body
        if not isinstance(part, ast.FunctionDef)
        or part.name in needed
        or not _RUNS.search(module.text(part))
    ]


def _is_own(call: ast.Call) -> bool:
    """Say whether a part of the model is called: `self.P(x)` makes nothing."""
    return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", None) == "self"


def _spoken(parts: list[ast.AST]) -> Iterator[str]:
    for part in parts:
        name = getattr(part, "attr", None) or getattr(part, "id", None)
        if isinstance(name, str) and _SPOKEN.match(name):
            yield name


def _may_drop(call: ast.Call) -> bool:
    given = len(call.args) > _BEFORE_DROPOUT
    return (
        given
        or any(isinstance(part, ast.Starred) for part in call.args)
        or any(part.arg is None for part in call.keywords)
    )


def _is_modeless_class(scope: Scope, name: str) -> bool:
    found = class_named(scope, name)
    return found is not None and is_modeless(found)


def class_named(scope: Scope | None, name: str) -> Class | None:
    """Return the class of the project that a name stands for, if it is one."""
    while scope is not None:
        found = scope.names.get(name)
        if found is not None:
            return found if isinstance(found, Class) else None
        scope = scope.outer
    return None


def is_settled(cls: Class) -> bool:
    """Say whether all that a new model uses either has no mode or was taken over from a model that
    had been put into eval mode, or comes in it.
    """
    taken = cls.scope.module.read(_taken, cls.code)
    if taken is None or [last(name) for name in cls.outside()] != ["Module"]:
        return False
    assigned, settled, used = taken
    seen, safe = bool(settled), set[str]()
    for name, value in assigned:
        known = isinstance(value, ast.Call) and _called(value) in MODELESS
        loaded = isinstance(value, ast.Call) and _comes_in_eval_mode(cls.scope, value)
        seen = seen or loaded
        is_safe = known or loaded or _root(value) in settled
        (safe.add if is_safe else safe.discard)(name)
    return seen and used <= safe


def _taken(
    code: ast.ClassDef, module: Module
) -> tuple[list[tuple[str, ast.expr]], set[str], set[str]] | None:
    """Return what a new model is given, what of that was put into eval mode before, and what it
    uses; None where the text says nothing of that kind.
    """
    initial, forward = (_method(code, name) for name in ("__init__", "forward"))
    if initial is None or forward is None:
        return None
    text = module.text(initial)
    if not (".eval()" in text or "from_pretrained(" in text) or _MODES.search(module.text(forward)):
        return None
    assigned = []
    for node in walk(initial):
        match node:
            case ast.Assign(targets=[ast.Attribute(ast.Name("self"), name)], value=value):
                assigned.append((name, value))
    used = {
        part.attr
        for part in walk(forward)
        if isinstance(part, ast.Attribute) and getattr(part.value, "id", None) == "self"
    }
    return assigned, _settled(initial), used


def _comes_in_eval_mode(scope: Scope | None, call: ast.Call) -> bool:
    """Say whether a call loads a model by the method of transformers that puts it into eval mode,
    under whatever name the class goes.
    """
    if _called(call) != "from_pretrained":
        return False
    name = _root(call.func)
    while scope is not None and name not in scope.names:
        scope = scope.outer
    found = scope.names[name] if scope is not None else None
    return isinstance(found, Ref) and found.path.startswith(_EVALUATED)


def _method(code: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    found = (part for part in code.body if isinstance(part, ast.FunctionDef))
    return next((part for part in found if part.name == name), None)


def _settled(function: ast.FunctionDef) -> set[str]:
    """Return the local names of models that a function puts into eval mode, and not back."""
    modes: dict[str, str] = {}
    for node in walk(function):
        if isinstance(node, ast.Call) and _called(node) in {"eval", "train"}:
            modes[_root(node.func)] = _called(node)
    return {name for name, mode in modes.items() if mode == "eval" and name not in {"", "self"}}


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))


def _root(node: ast.AST) -> str:
    """Return the name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@goes_down
def brings(part: Net, whole: Net) -> bool:
    """Say whether a new part may bring parameters that a model did not have: not where all that it
    is made of has none, or was in the model before.
    """
    if whole in part.lineage() or _BARE.match(str(part.kind)):
        return False
    # Other layers have parts only in so far as their sizes are those of another layer.
    known = part.parts if part.kind in _HOLDERS else []
    return not known or any(brings(inner, whole) for inner in known)


def notices_mode(net: Net, module: Module) -> bool:
    """Say whether train mode may make a difference to a model that is used in a module: not where
    a rate of dropout is set to nothing, and no batch normalisation is to be seen, nor where all
    that has a mode came in eval mode.
    """
    if net.modeless or net.settled or net.batchnorm:
        return not (net.modeless or net.settled)
    return module.drops and (net.cls is None or net.cls.scope.module.drops)


def _has_batchnorm(cls: Class, own: str) -> bool:
    """Say whether a class, or one that it uses and is written beside, has batch normalisation."""
    module = cls.scope.module
    if _NORM in own and _BATCHNORM.search(own):
        return True
    return module.read(_speaks_of_batchnorm, module.tree) and any(
        isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node is not cls.code
        and f"{node.name}(" in own
        and _BATCHNORM.search(module.text(node))
        and re.search(rf"\b{node.name}\(", own)
        for node in module.tree.body
    )


def _speaks_of_batchnorm(_tree: ast.Module, module: Module) -> bool:
    text = module.unit.text
    return _NORM in text and _BATCHNORM.search(text) is not None
