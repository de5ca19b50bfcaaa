"""What a model's class is made of, read from its text: batch normalisation, and parameters."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from instep.check.execute.roles import last

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.check.execute.definitions import Class
    from instep.check.execute.program import Module
    from instep.check.execute.things import Net

_BATCHNORM = re.compile(r"\b(BatchNorm[123]d|SyncBatchNorm|BatchNorm)\b")
MODELESS = frozenset(
    {"Linear", "Conv1d", "Conv2d", "Conv3d", "ReLU", "GELU", "Tanh", "Sigmoid", "Softmax", "SiLU",
     "LeakyReLU", "Flatten", "MaxPool1d", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Identity",
     "Embedding", "LayerNorm", "GroupNorm", "Softplus", "ELU", "LogSoftmax", "Unflatten"}
)  # fmt: skip
"""Layers that do the same in train and in eval mode."""
_MODES = re.compile(
    r"[Dd]rop|BatchNorm|InstanceNorm|SyncB|pretrained|resnet|models\.|timm|LSTM|GRU|Transformer"
    r"|Attention|\.train\(|self\.training|from_config|hub\.load"
)
_MADE = re.compile(r"\b([A-Z]\w*)\(")
_TRAINABLE = re.compile(
    r"\b(Linear|Conv[123]d|ConvTranspose[123]d|Embedding|LSTM|GRU|RNN|Transformer\w*|Parameter"
    r"|MultiheadAttention|resnet\w*|from_pretrained)\("
)


def of_class(cls: Class) -> tuple[bool | None, bool | None]:
    """Say whether a model's class uses batch normalisation and has parameters; None: not seen."""
    known = cls.scope.module.layers
    if cls.code not in known:
        text = cls.scope.module.text(cls.code)
        trainable = True if _TRAINABLE.search(text) else None
        known[cls.code] = (True if _has_batchnorm(cls, text) else None, trainable)
    return known[cls.code]


def is_modeless(cls: Class) -> bool:
    """Say whether a model surely does the same in train and in eval mode: nothing in its class is
    about modes, and all of its layers are known.
    """
    text = cls.scope.module.text(cls.code)
    if [last(name) for name in cls.outside()] != ["Module"] or _MODES.search(text):
        return False
    made = {name for name in _MADE.findall(text) if name not in {cls.known_as, "Sequential"}}
    return made <= MODELESS


def is_settled(cls: Class) -> bool:
    """Say whether all that a new model uses either has no mode or was taken over from a model that
    had been put into eval mode.
    """
    initial, forward = (_method(cls, name) for name in ("__init__", "forward"))
    if initial is None or forward is None or ".eval()" not in cls.scope.module.text(initial):
        return False
    if [last(name) for name in cls.outside()] != ["Module"]:
        return False
    settled, safe = _settled(initial), set[str]()
    for node in ast.walk(initial):
        match node:
            case ast.Assign(targets=[ast.Attribute(ast.Name("self"), name)], value=value):
                known = isinstance(value, ast.Call) and _called(value) in MODELESS
                (safe.add if known or _root(value) in settled else safe.discard)(name)
    used = {
        part.attr
        for part in ast.walk(forward)
        if isinstance(part, ast.Attribute) and getattr(part.value, "id", None) == "self"
    }
    return bool(settled) and used <= safe and not _MODES.search(cls.scope.module.text(forward))


def _method(cls: Class, name: str) -> ast.FunctionDef | None:
    found = (part for part in cls.code.body if isinstance(part, ast.FunctionDef))
    return next((part for part in found if part.name == name), None)


def _settled(function: ast.FunctionDef) -> set[str]:
    """Return the local names of models that a function puts into eval mode, and not back."""
    modes: dict[str, str] = {}
    for node in ast.walk(function):
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


def notices_mode(net: Net, module: Module) -> bool:
    """Say whether train mode may make a difference to a model that is used in a module: not where
    a rate of dropout is set to nothing, and no batch normalisation is to be seen, nor where all
    that has a mode came in eval mode.
    """
    if net.modeless or net.settled or net.batchnorm:
        return not (net.modeless or net.settled)
    return module.drops and (net.cls is None or net.cls.scope.module.drops)


def turns_dropout_off(tree: ast.Module) -> bool:
    """Say whether a text sets a rate of dropout to 0: by an argument, an attribute or an entry.

    >>> turns_dropout_off(ast.parse("config.hidden_dropout_prob = 0.0"))
    True
    >>> turns_dropout_off(ast.parse("loader = DataLoader(data, drop_last=False)"))
    False
    """
    return any(
        isinstance(value, ast.Constant)
        and type(value.value) in {int, float}
        and not value.value
        and "drop" in name.lower()
        for node in ast.walk(tree)
        for name, value in _settings(node)
    )


def _settings(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """Give what a node sets, by its name."""
    match node:
        case ast.keyword(arg=str(name)):
            yield name, node.value
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value), value
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            yield str(getattr(target, "attr", None) or getattr(target, "id", "")), node.value
        case ast.Call(func=func, args=[rate]):
            yield str(getattr(func, "attr", None) or getattr(func, "id", "")), rate


def _has_batchnorm(cls: Class, own: str) -> bool:
    """Say whether a class, or one that it uses and is written beside, has batch normalisation."""
    module = cls.scope.module
    if _BATCHNORM.search(own):
        return True
    return _BATCHNORM.search(module.unit.text) is not None and any(
        isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node is not cls.code
        and _BATCHNORM.search(module.text(node))
        and re.search(rf"\b{node.name}\(", own)
        for node in module.tree.body
    )
