"""Small sources, executed: their values, and the events of a path as short tuples."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

from instep.check.execute.entries import Runner
from instep.check.execute.lengths import Lengths
from instep.check.execute.machine import Machine
from instep.check.execute.program import Module, Project, Scope
from instep.check.execute.values import unify
from instep.check.units import Locator, PlainOrigin, Unit, build
from instep.trace import Created

# What a short tuple says about an event, after its kind.
SHOWN = {
    "assumed": ("condition", "holds"),
    "backward": ("optimizers", "factor"),
    "called": ("api",),
    "clip": ("optimizers", "by", "limit"),
    "created": ("id", "role"),
    "drawn": ("loader", "index", "of"),
    "epoch_end": ("loader", "batches", "of"),
    "forward": ("model", "training"),
    "grad_edited": ("optimizers", "factor"),
    "grad_read": ("optimizers", "guarded"),
    "loss_kept": ("into",),
    "mode": ("model", "training"),
    "opaque": ("optimizers", "what"),
    "rebound": ("name", "was", "now"),
    "scaler_update": ("scaler",),
    "schedule": ("optimizer", "scheduler", "explicit"),
    "step": ("optimizer", "every"),
    "unscale": ("optimizer", "scaler"),
    "zero": ("optimizers", "complete"),
}
SETUP = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
UPDATE = """
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def unit_of(source: str) -> Unit:
    text = dedent(source)
    return build(text, "python", Locator("train.py"), PlainOrigin(text))


def module_of(source: str) -> Module:
    return Module(unit_of(source), None)


def run(source: str, files: dict[str, str] | None = None, folder: Path | None = None):
    """Execute a source as `instep check` does; `files` lie beside it in `folder`."""
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    project = Project()
    file = None if folder is None else str(folder / "train.py")
    module = project.adopt(unit_of(source), file)
    return Runner(module, project).all()


def base(source: str, *, entry: str | None = None, **more):
    """Return the trace of the first path, or of the first one from an entry."""
    paths = run(source, **more).paths
    return next(path.trace for path in paths if entry is None or path.entry == entry)


def short(event) -> tuple:
    kind = event.kind.replace("-", "_")
    return (kind, *(getattr(event, name) for name in SHOWN[kind]))


def events(source: str, *kinds: str, **more) -> list[tuple]:
    """Return the events of the base path, of some kinds; of all but creations if none is named."""
    found = [short(event) for event in base(source, **more)]
    return [event for event in found if event[0] in kinds or (not kinds and event[0] != "created")]


def once(source: str, *kinds: str, **more) -> list[tuple]:
    """Return them without those that come again."""
    return list(dict.fromkeys(events(source, *kinds, **more)))


def facts(source: str, id_: str, **more) -> dict:
    return next(
        dict(event.facts)
        for event in base(source, **more)
        if isinstance(event, Created) and event.id == id_
    )


def problems(source: str, **more) -> list[str]:
    return [reason for reason, _ in run(source, **more).problems]


def executed(source: str, forced: dict[str, bool] | None = None) -> tuple[Machine, Scope]:
    """Execute the statements of a module on one path, and return what it left."""
    module = module_of(source)
    m = Machine(Project(), Lengths(), forced)
    scope = m.scope_of(module)
    m.run(module.tree.body, scope)
    return m, scope


def value(source: str, name: str = "v"):
    """Return what a name stands for at the end of a source."""
    return unify(executed(source)[1].names[name])


def evaluated(expression: str, setup: str = ""):
    """Return what an expression stands for."""
    m, scope = executed(setup)
    return unify(m.ev(ast.parse(expression, mode="eval").body, scope))
