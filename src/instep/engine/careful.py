"""An optimizer's step that out of memory cannot leave half made.

`optimizer.step()` is not atomic: an allocation that fails in its middle leaves some parameters, or
some of their moments, changed. A copy of everything would need the memory that is missing. So the
update is made unit by unit, a few parameters at a time, each with a copy of these few: what failed
is put back and done again, first with everything freed, then one parameter at a time, then on the
host.

The units are stepped from a hook of the one `optimizer.step()` there is, which finds no gradients
left and does nothing. Other hooks, schedulers and watchers see that one call.
"""

from __future__ import annotations

import gc
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from instep.engine.memory import is_out_of_memory
from instep.errors import WindowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.optim import Optimizer

# Those whose update of a parameter depends on no other parameter. Subclasses may do anything.
SEPARABLE: frozenset[type[Optimizer]] = frozenset(
    {
        torch.optim.ASGD,
        torch.optim.Adadelta,
        torch.optim.Adafactor,
        torch.optim.Adagrad,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.Muon,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.SGD,
        torch.optim.SparseAdam,
    }
)
# Copies of one unit: small beside a model, and large enough that most kernels see many parameters.
UNIT_BYTES = 2**25

Group = dict[str, Any]
Unit = tuple[Group, list[Tensor]]


def release() -> None:
    """Give back all memory that nobody uses."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class CarefulStep:
    """Steps the optimizers of one window."""

    def __init__(self, window: int, *, keep_gradients: bool) -> None:
        self.has_begun = False
        """Whether a parameter may have changed, so that the window must not be replayed."""
        self._window = window
        self._keep_gradients = keep_gradients
        self._done = self._all = 0

    def __call__(self, optimizers: Sequence[Optimizer]) -> None:
        """Update with each of them, once."""
        for optimizer in optimizers:
            if is_separable(optimizer):
                self._step_in_units(optimizer)
            else:
                self._step_whole(optimizer)

    def _step_whole(self, optimizer: Optimizer) -> None:
        self.has_begun = True
        try:
            optimizer.step()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise self._half_made(optimizer, "how far it got cannot be known") from error
            raise

    def _step_in_units(self, optimizer: Optimizer) -> None:
        held: list[tuple[Tensor, Tensor]] = []

        def update(*_: object) -> None:
            self.has_begun = True
            held.extend(
                (p, p.grad) for _, ps in units_of(optimizer) for p in ps if p.grad is not None
            )
            self._done, self._all = 0, len(held)
            if not self._keep_gradients:
                held.clear()
            for group, params in units_of(optimizer):
                self._advance(optimizer, group, params)

        def give_back(*_: object) -> None:
            for parameter, gradient in held:
                parameter.grad = gradient

        before = optimizer.register_step_pre_hook(update)
        after = optimizer.register_step_post_hook(give_back)
        # Hooks of others come after ours, and may read the gradients if they are to be kept.
        optimizer._optimizer_step_post_hooks.move_to_end(after.id, last=False)  # type: ignore[attr-defined]  # noqa: SLF001
        try:
            optimizer.step()
        finally:
            before.remove()
            after.remove()

    def _advance(self, optimizer: Optimizer, group: Group, params: list[Tensor]) -> None:
        if not _try(optimizer, group, params):
            release()
            for parameter in params:
                if not _try(optimizer, group, [parameter]):
                    release()
                    self._on_host(optimizer, group, parameter)
                parameter.grad = None
                self._done += 1
            return
        for parameter in params:
            parameter.grad = None
        self._done += len(params)

    def _on_host(self, optimizer: Optimizer, group: Group, parameter: Tensor) -> None:
        try:
            step_on_host(optimizer, group, parameter)
        except RuntimeError as error:
            if is_out_of_memory(error):
                far = f"{self._done} of its {self._all} parameters were updated, the others not"
                raise self._half_made(optimizer, far) from error
            raise

    def _half_made(self, optimizer: Optimizer, far: str) -> WindowError:
        return WindowError(
            f"out of memory inside the step of {type(optimizer).__name__}, in window "
            f"{self._window}.",
            why=f"the update may be half made: {far}. Smaller pieces do not help an optimizer.",
            fix="load the last checkpoint of model and optimizer, and leave more memory: a smaller "
            "model, another optimizer, fused=True, or less beside it on this device.",
            more="split",
        )


def is_separable(optimizer: Optimizer) -> bool:
    """Whether its parameters can be stepped one after the other, with the same result."""
    plain = not any(group.get("differentiable") for group in optimizer.param_groups)
    return type(optimizer) in SEPARABLE and plain


def units_of(optimizer: Optimizer) -> list[Unit]:
    """Cut what an optimizer would update into units, each from one group."""
    units: list[Unit] = []
    for group in optimizer.param_groups:
        params = [p for p in group["params"] if p.grad is not None]
        if group.get("fused"):
            units += ((group, together) for together in _by_kind(params))
        else:
            units += ((group, together) for together in _by_bytes(optimizer, params))
    return units


def _by_kind(params: Sequence[Tensor]) -> list[list[Tensor]]:
    """One fused kernel each: it allocates nothing, so that only what comes before it can fail."""
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for parameter in params:
        kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    return list(kinds.values())


def _by_bytes(optimizer: Optimizer, params: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    together: list[Tensor] = []
    size = 0
    for parameter in params:
        state = optimizer.state.get(parameter, {})
        own = parameter.nbytes + sum(v.nbytes for v in state.values() if isinstance(v, Tensor))
        if together and size + own > UNIT_BYTES:
            yield together
            together, size = [], 0
        together.append(parameter)
        size += own
    if together:
        yield together


def _try(optimizer: Optimizer, group: Group, params: list[Tensor]) -> bool:
    """Step these parameters, all or none; False if there was no memory for it."""
    try:
        before = _Before(optimizer, params, is_fused=bool(group.get("fused")))
    except RuntimeError as error:
        if is_out_of_memory(error):
            return False
        raise
    try:
        _step(optimizer, {**group, "params": params})
    except BaseException as error:
        before.restore()
        if is_out_of_memory(error):
            return False
        raise
    return True


@torch.no_grad()
def _step(optimizer: Optimizer, group: Group) -> None:
    """Run the optimizer's own step, without its hooks, on one group."""
    groups = optimizer.param_groups
    optimizer.param_groups = [group]
    try:
        inspect.unwrap(type(optimizer).step)(optimizer)
    finally:
        optimizer.param_groups = groups


class _Before:
    """Some parameters and their state as they were; of fused ones, only the counters."""

    @torch.no_grad()
    def __init__(self, optimizer: Optimizer, params: Sequence[Tensor], *, is_fused: bool) -> None:
        self._optimizer = optimizer
        self._values = [] if is_fused else [(p, p.detach().clone()) for p in params]
        self._states = [(p, self._state(p)) for p in params]
        for _, state in self._states:
            for value in (state or {}).values():
                if isinstance(value, Tensor) and not (is_fused and value.dim()):
                    self._values.append((value, value.clone()))

    def _state(self, parameter: Tensor) -> dict[str, Any] | None:
        state = self._optimizer.state.get(parameter)
        return None if state is None else dict(state)

    @torch.no_grad()
    def restore(self) -> None:
        """Put all of it back, in place: nothing is allocated."""
        for parameter, state in self._states:
            if state is None:
                self._optimizer.state.pop(parameter, None)
            else:
                here = self._optimizer.state[parameter]
                here.clear()
                here.update(state)
        for tensor, value in self._values:
            tensor.copy_(value)


@torch.no_grad()
def step_on_host(optimizer: Optimizer, group: Group, parameter: Tensor) -> None:
    """Make the update of one parameter in the host's memory, and copy the result back.

    Until everything is computed and has its place, nothing has changed.
    """
    twin = nn.Parameter(parameter.detach().to("cpu", copy=True), requires_grad=False)
    assert parameter.grad is not None  # noqa: S101 -- units are made of parameters that have one
    twin.grad = parameter.grad.detach().to("cpu", copy=True)
    known = optimizer.state.get(parameter, {})
    ours = {k: _on_cpu(v) for k, v in group.items() if k != "params"}
    if "capturable" in ours:
        ours["capturable"] = False
    if known:
        optimizer.state[twin] = {k: _on_cpu(v) for k, v in known.items()}
    try:
        _step(optimizer, {**ours, "params": [twin]})
        found = dict(optimizer.state.get(twin, {}))
    finally:
        optimizer.state.pop(twin, None)
    counts_there = (
        group.get("fused") or group.get("capturable") or (type(optimizer) is torch.optim.ASGD)
    )
    placed: dict[str, Any] = {}
    for name, value in found.items():
        old = known.get(name)
        if isinstance(value, Tensor) and not isinstance(old, Tensor):
            there = value.dim() > 0 or counts_there
            placed[name] = value.to(parameter.device) if there else value
        elif not isinstance(value, Tensor):
            placed[name] = value
    for name, value in found.items():
        if isinstance(value, Tensor) and isinstance(known.get(name), Tensor):
            known[name].copy_(value)
    parameter.copy_(twin)
    if found:
        optimizer.state[parameter].update(placed)


def _on_cpu(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
