"""Flat buffers: parameters, gradients and moments of one group as views of one tensor each.

The `nn.Parameter`s stay the objects they are, and so does `optimizer.state`: only the memory behind
them moves. `state_dict()` and `load_state_dict()` of both work as before; what was loaded or moved
is taken in again at the next opening or close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from instep.fast.layout import BLOCK, Layout
from instep.fast.rules import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim import Optimizer

    from instep.fast.rules import Rule

MOST_TERMS = 4
"""Gradients with denominators of their own that a kernel adds up on its way.

A pointer each and a compilation for each number; more losses than this are rare. Windows that have
more are merged into one buffer before, which is one more pass over memory for each of them.
"""
WARPS = 4
"""Of each program. With blocks of this size, the fastest of those that were tried on an H200."""
PROGRAMS = 2048
"""How many share the squares of a norm, at most."""


class Flat:
    """The parameters of one optimizer's group that share a type and a device."""

    def __init__(
        self,
        optimizer: Optimizer,
        group: dict[str, Any],
        members: Sequence[Tensor],
        *,
        rule: Rule,
        gradient_type: torch.dtype,
    ) -> None:
        first = members[0]
        self.members = list(members)
        self.device = first.device
        self.dtype = first.dtype
        self.wide = torch.float64 if first.dtype is torch.float64 else torch.float32
        self.layout = Layout.of([p.numel() for p in members])
        self.parameters = self._zeros(self.dtype)
        self.gradients = self._zeros(gradient_type)
        self.narrow: Tensor | None = None
        """A bf16 copy of the parameters that every update renews, where one is asked for."""
        self.views = self.cut(self.gradients)
        self.moments: list[Tensor] = []
        self.steps = [0] * len(members)
        """Updates that each parameter has had."""
        self._optimizer = optimizer
        self._known_group = group
        self._rule = rule
        self._moment_views: list[list[Tensor]] = []
        self._step_tensors = self._made_steps()
        self._step_views = list(self._step_tensors.unbind())
        self._step_version = self._step_tensors._version  # noqa: SLF001 -- torch's own counter
        self._owners = torch.tensor(self.layout.owners, dtype=torch.int32).to(self.device)
        self._rows = torch.zeros(len(members), COLUMNS, dtype=self.wide, device=self.device)
        on_cuda = self.device.type == "cuda"
        self._host_rows = torch.zeros(
            len(members), COLUMNS, dtype=self.wide, pin_memory=on_cuda and torch.cuda.is_available()
        )
        self._places: list[tuple[int, tuple[int, ...]]] = []
        self._version: list[int] = []
        self.adopt()

    # -- memory ----------------------------------------------------------------------------------

    def _zeros(self, dtype: torch.dtype) -> Tensor:
        return torch.zeros(self.layout.length, dtype=dtype, device=self.device)

    def cut(self, flat: Tensor) -> list[Tensor]:
        """Return the view of each parameter, with the parameter's own strides."""
        return [
            flat.as_strided(p.size(), p.stride(), offset)
            for p, offset in zip(self.members, self.layout.offsets, strict=True)
        ]

    def adopt(self) -> None:
        """Let every parameter be a view of the flat buffer, with the values it has now."""
        with torch.no_grad():
            for parameter, view in zip(self.members, self.cut(self.parameters), strict=True):
                view.copy_(parameter)
                parameter.data = view
        self._places = self._placed()
        self.renew_narrow()

    def is_moved(self) -> bool:
        """Whether a parameter was given other memory since it was adopted."""
        return self._placed() != self._places

    def is_alike(self) -> bool:
        """Whether every parameter could be where it was: same type, device, shape and strides."""
        return all(
            p.dtype is self.dtype
            and p.device == self.device
            and p.shape == view.shape
            and p.stride() == view.stride()
            for p, view in zip(self.members, self.views, strict=True)
        )

    def _placed(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(p.data_ptr(), p.stride()) for p in self.members]

    @property
    def was_written(self) -> bool:
        """Whether somebody else wrote to a parameter since the last update or renewal."""
        return self._seen() != self._version

    def renew_narrow(self) -> None:
        """Bring the bf16 copy up to date: the kernel does that for its own updates."""
        if self.narrow is not None:
            self.narrow.copy_(self.parameters)
        self._version = self._seen()

    def _seen(self) -> list[int]:
        return [p._version for p in self.members]  # noqa: SLF001 -- torch's own counters

    def keep_narrow(self) -> list[Tensor]:
        """Keep a bf16 copy from now on; return the view of each parameter in it."""
        if self.narrow is None:
            self.narrow = self.parameters.to(torch.bfloat16)
            self._version = self._seen()
        return self.cut(self.narrow)

    # -- the optimizer's state -------------------------------------------------------------------

    @property
    def _group(self) -> dict[str, Any]:
        """The group of these parameters: loading a state puts new ones in place of the old."""
        groups = self._optimizer.param_groups
        if not any(group is self._known_group for group in groups):
            first = self.members[0]
            self._known_group = next(g for g in groups if any(p is first for p in g["params"]))
        return self._known_group

    @property
    def is_fit(self) -> bool:
        """Whether the moments that are kept are those that the group's options ask for."""
        return not self.moments or len(self._states) == len(self.moments)

    def take_state(self) -> None:
        """Let the optimizer's moments be views of flat buffers: made now, or loaded since."""
        names = self._states
        if not self.moments:
            self.moments = [self._zeros(self.dtype) for _ in names]
            self._moment_views = [self.cut(moment) for moment in self.moments]
        if self._step_tensors._version != self._step_version:  # noqa: SLF001
            # Somebody else has counted: a plain step between windows, or an edit in place.
            self.steps = [round(step) for step in self._step_tensors.tolist()]
        state = self._optimizer.state
        for index, parameter in enumerate(self.members):
            # A parameter has no state before its first update, in plain torch either.
            held = state.get(parameter, {})
            self._take_moments(index, held)
            if self._rule.has_step and held.get("step") is not self._step_views[index]:
                self._take_step(index, held)
        self._step_version = self._step_tensors._version  # noqa: SLF001

    def _take_moments(self, index: int, held: dict[str, Any]) -> None:
        is_known = self.steps[index] > 0
        for name, views in zip(self._states, self._moment_views, strict=True):
            found = held.get(name)
            if found is views[index]:
                continue
            if found is not None:
                views[index].copy_(found)
                held[name] = views[index]
            elif is_known:
                views[index].zero_()
            if not self._rule.has_step:
                self.steps[index] = 0 if found is None else max(self.steps[index], 1)

    def _take_step(self, index: int, held: dict[str, Any]) -> None:
        found = held.get("step")
        if found is not None:
            self.steps[index] = round(float(found))
            self._step_views[index].fill_(float(found))
            held["step"] = self._step_views[index]
        elif self.steps[index]:
            self.steps[index] = 0
            self._step_views[index].zero_()

    @property
    def _states(self) -> tuple[str, ...]:
        is_sgd_without = self._rule.states == ("momentum_buffer",) and not self._group["momentum"]
        return () if is_sgd_without else self._rule.states

    def _made_steps(self) -> Tensor:
        # Where torch itself would keep them: on the device only for fused and capturable updates.
        on_device = self._group.get("fused") or self._group.get("capturable")
        device = self.device if on_device else torch.device("cpu")
        return torch.zeros(len(self.members), dtype=torch.float32, device=device)

    # -- the update ------------------------------------------------------------------------------

    def norm(self, parts: Sequence[Tensor] = (), shares: Tensor | None = None) -> Tensor:
        """Return the norm of the gradient on its device: of the buffer, or of a sum of several."""
        from instep.fast.kernels import SMALLER, squares  # noqa: PLC0415 -- only with a device

        blocks = len(self._owners)
        programs = min(blocks, PROGRAMS)
        sums = torch.empty(2, programs, dtype=self.wide, device=self.device)
        squares[(programs,)](
            *_four(parts or [self.gradients]),
            sums if shares is None else shares.to(self.wide),
            sums,
            blocks,
            TERMS=len(parts),
            WIDE=self._kernel_type,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
        usual, large = sums.sum(1, dtype=torch.float64)
        length: Tensor = (usual + large / SMALLER.value**2).sqrt().to(self.wide)
        return length

    @property
    def _kernel_type(self) -> Any:
        import triton.language as tl  # noqa: PLC0415 -- only where there is a device for it

        return tl.float64 if self.wide is torch.float64 else tl.float32

    def write_rows(self, active: Sequence[bool]) -> None:
        """Send the numbers of the next update to the device; the last send must be over."""
        known: dict[int, tuple[float, ...]] = {}
        group = self._group
        rows = []
        for step, is_active in zip(self.steps, active, strict=True):
            row = known.get(step)
            if row is None:
                row = known[step] = self._rule.row(group, step + 1)
            rows.append(row if is_active else (0.0,) * COLUMNS)
        self._host_rows.copy_(torch.tensor(rows, dtype=self.wide))
        self._rows.copy_(self._host_rows, non_blocking=True)

    def launch(self, norm: Tensor, factors: Tensor, parts: Sequence[Tensor] = ()) -> None:
        """Update every active parameter, unless the norm is not finite.

        The gradient is the buffer's, or the sum of several `parts` with their shares in `factors`.
        """
        from instep.fast.kernels import update  # noqa: PLC0415 -- only where there is a device

        moments = self.moments or [self.parameters]
        update[(len(self._owners),)](
            self.parameters,
            *_four(parts or [self.gradients]),
            moments[0],
            moments[-1],
            self.parameters if self.narrow is None else self.narrow,
            self._owners,
            self._rows,
            norm,
            factors,
            KIND=self._rule.kind,
            MOMENTS=len(self.moments),
            TERMS=len(parts),
            NARROW=self.narrow is not None,
            COLUMNS=COLUMNS,
            WIDE=self._kernel_type,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def note_update(self, active: Sequence[bool]) -> list[Tensor]:
        """Count an update that was launched, and show its state to the optimizer.

        Return the parameters that had none before.
        """
        new = [
            p
            for p, on, step in zip(self.members, active, self.steps, strict=True)
            if on and not step
        ]
        self._count(active, 1)
        if new:
            self._show_state(active)
        return new

    def forget_update(self, active: Sequence[bool], new: Sequence[Tensor]) -> None:
        """Take back the count of an update that turned out not to have been made."""
        self._count(active, -1)
        for parameter in new:
            self._optimizer.state.pop(parameter, None)

    def _count(self, active: Sequence[bool], number: int) -> None:
        self.steps = [step + number * on for on, step in zip(active, self.steps, strict=True)]
        if self._rule.has_step:
            if all(active):
                self._step_tensors += number
            else:
                some = number * torch.tensor(active, dtype=torch.float32)
                self._step_tensors += some.to(self._step_tensors.device)
            self._step_version = self._step_tensors._version  # noqa: SLF001

    def _show_state(self, active: Sequence[bool]) -> None:
        names = self._states
        if not names and not self._rule.has_step:
            return
        state = self._optimizer.state
        for index, parameter in enumerate(self.members):
            if active[index]:
                held = state[parameter]
                for name, views in zip(names, self._moment_views, strict=True):
                    held[name] = views[index]
                if self._rule.has_step:
                    held["step"] = self._step_views[index]


def _four(parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return as many buffers as a kernel takes; it reads only those that there are."""
    return (*parts, *[parts[0]] * (MOST_TERMS - len(parts)))
