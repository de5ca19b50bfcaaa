"""Whether something in a model is seen to notice train and eval mode: dropout, batch normalisation.

`layers` says of what it is certain that nothing does. Between the two are models of which nobody
knows: those that a function is given, or that come from a package.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from instep.check.execute.layers import class_named
from instep.check.execute.levels import goes_down
from instep.trace.pattern import pattern
from instep.trace.trees import walk

if TYPE_CHECKING:
    from instep.check.execute.definitions import Class
    from instep.check.execute.things import Net

_NOTICES = pattern(
    r"drop(out|path|connect)|batch_?norm|sync_?bn|self\.training|resne[tx]|densenet|mobilenet"
    r"|efficientnet|inception|shufflenet|regnet|vgg\w*_bn|convnext|torchvision|timm|from_pretrained"
    r"|automodel|\bbert|roberta|gpt2|transformer(encoder|decoder)|hub\.load|\bvit_",
    re.IGNORECASE,
)


def has_mode(net: Net) -> bool:
    """Say whether a layer that notices the mode is seen in a model, or in what it is a part of."""
    return any(
        part.batchnorm
        or (part.cls is not None and _of_class(part.cls))
        or (part.kind is not None and _NOTICES.search(part.kind) is not None)
        for whole in net.lineage()
        for part in whole.inside()
    )


@goes_down
def _of_class(cls: Class) -> bool:
    known = cls.scope.module.moded
    if cls.code not in known:
        known[cls.code] = False  # while it is asked: one that is made of itself
        known[cls.code] = any(_says(base) or _is_made_of_such(base) for base in cls.mro())
    return known[cls.code]


def _says(cls: Class) -> bool:
    return _NOTICES.search(cls.scope.module.text(cls.code)) is not None


def _is_made_of_such(cls: Class) -> bool:
    for part in walk(cls.code):
        name = part.func.id if isinstance(part, ast.Call) and type(part.func) is ast.Name else ""
        found = class_named(cls.scope, name) if name[:1].isupper() else None
        if found is not None and _of_class(found):
            return True
    return False
