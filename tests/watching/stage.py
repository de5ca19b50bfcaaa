"""A place where loops run for real: what their source does not define is given to them.

The source is compiled as it stands in its file, so that lines and columns are those of the file.
Only three things are different: "cuda" is the CPU, devices of DDP are left out, and nothing is
compiled. After some updates a loop is stopped.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import io
import re
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.distributed
from torch.optim.optimizer import register_optimizer_step_post_hook

import instep
from tests.watching import props

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_UPDATES = 80
"""Of a loop, before it is stopped."""


@dataclass(frozen=True)
class Scene:
    """What a loop needs: a call, if it only defines functions, and names that are special."""

    call: str = ""
    names: dict[str, Any] = field(default_factory=dict)
    """Functions without arguments, or numbers."""
    saved: Callable[[], Any] = dict
    """Makes what `torch.load` finds."""


def scenes(call: str = "", **names: Any) -> Scene:
    """Return a scene, with its names as words."""
    return Scene(call, names)


@dataclass(frozen=True)
class Shown:
    """What came of it."""

    findings: tuple[Any, ...]
    updates: int
    error: BaseException | None
    faults: tuple[str, ...]


class Names(dict[str, Any]):
    """Globals that are made when they are first asked for."""

    def __init__(self, source: str, scene: Scene) -> None:
        super().__init__(__name__="__main__")
        self._scene = scene
        self._source = source
        self._is_regression = "cross_entropy" not in source and "CrossEntropy" not in source

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        self[name] = value = self._made(name)
        return value

    def _made(self, name: str) -> Any:
        given = self._scene.names.get(name, _NUMBERS.get(name))
        if given is not None:
            return given() if callable(given) else given
        for names, make in (
            ({"criterion", "loss_fn"}, self._criterion),
            ({"optimizer", "opt"}, self._optimizer),
            (_NETS, props.Net),
            (_LOADERS, self._loader),
            (_STREAMS, lambda: props.endless(self._loader())),
        ):
            if name in names:
                return make()
        raise KeyError(name)

    def _criterion(self) -> Any:
        return torch.nn.MSELoss() if self._is_regression else torch.nn.CrossEntropyLoss()

    def _optimizer(self) -> Any:
        trained = "model" if re.search(r"\bmodel\b", self._source) else "net"
        return torch.optim.SGD(self[trained].parameters(), lr=0.01)

    def _loader(self) -> Any:
        given = self._scene.names.get("loader")
        if given is not None:
            return given()
        goal = props.numbers() if self._is_regression else props.classes
        return props.loader(props.numbers(), goal)


_NETS = {
    "model", "net", "net_a", "net_b", "lm", "encoder", "decoder", "unet", "gen", "disc", "critic",
    "actor", "tower", "teacher", "student", "classifier", "policy", "transformer", "trunk",
    "predictor", "detector", "denoiser", "agent",
}  # fmt: skip
_LOADERS = {
    "loader", "train_loader", "test_loader", "val_loader", "valid", "data_loader", "first_task",
    "second_task", "queries",
}  # fmt: skip
_STREAMS = {"batches", "stream", "feed", "data"}
_NUMBERS = {
    "epochs": 3, "num_updates": 12, "total_updates": 12, "updates": 12, "micro": 4,
    "grad_accum": 4, "start_epoch": 0, "resumed": 0,
}  # fmt: skip


class _Reader(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if node.value != "cuda":
            return node
        return ast.copy_location(ast.Constant("cpu"), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [word for word in node.keywords if word.arg != "device_ids"]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            return node.func.value
        return node


def show(path: Path, scene: Scene) -> Shown:
    """Run the loop of a file under watch."""
    source = path.read_text(encoding="utf-8-sig")
    code = compile(_Reader().visit(ast.parse(source)), str(path), "exec")
    names = Names(source, scene)
    job = instep.watch(live=False)
    error: BaseException | None = None
    torch.manual_seed(0)
    gc.freeze()  # what is there already is not on the stage
    with contextlib.ExitStack() as stack:
        stack.enter_context(stand_ins(source))
        stack.enter_context(mock.patch.object(torch, "compile", lambda model: model))
        stack.enter_context(mock.patch.object(torch, "load", side_effect=lambda _: scene.saved()))
        stack.enter_context(mock.patch.object(sys, "argv", [str(path)]))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(group("DistributedDataParallel" in source))
        try:
            with job, limited():
                exec(code, names)  # noqa: S102  # that is what a stage is for
                if scene.call:
                    exec(scene.call, names)  # noqa: S102
        except props.Enough:
            error = None
        except Exception as raised:  # noqa: BLE001  # whatever it is, it is shown
            error = raised
    updates = sum(job.series.updates.values())
    return Shown(job.findings, updates, error, tuple(job.seam.faults))


@contextlib.contextmanager
def limited() -> Any:
    """Stop a loop after some updates, when the watcher has seen the last of them."""
    left = MOST_UPDATES

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise props.Enough

    handle = register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def stand_ins(source: str) -> Any:
    """Have packages that a loop imports, where they are not installed."""
    given = {
        name: module
        for name, module in props.packages().items()
        if f" {name} " in source.replace("\n", " ")
    }
    sys.modules.update(given)
    try:
        yield
    finally:
        for name in given:
            del sys.modules[name]


@contextlib.contextmanager
def group(wanted: bool) -> Any:
    """Be a group of one process, for those who distribute."""
    if not wanted:
        yield
        return
    store = torch.distributed.HashStore()
    shows = sys.excepthook  # a group puts its own there, and leaves it
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
        sys.excepthook = shows
