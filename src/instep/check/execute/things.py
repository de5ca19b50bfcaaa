"""Things with a role in training: optimizers, models and their parameters, loaders, losses."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from instep.check.execute.values import Thing

if TYPE_CHECKING:
    from instep.check.execute.definitions import Class
    from instep.check.execute.values import Value

_SERIALS = count()


class Optimizer(Thing):
    """An optimizer: `nets` are the models whose parameters it holds, None if not known."""

    def __init__(
        self, name: str | None, nets: frozenset[Net] | None = None, kind: str | None = None
    ) -> None:
        super().__init__(name)
        self.nets = nets
        self.kind = kind
        self.torch = False
        self.is_own = False  # its `step` is the project's, and may do anything
        self.given: frozenset[object] = frozenset()  # what of its parameters is no model's
        self.accelerator: Accelerator | None = None


class Scheduler(Thing):
    """A learning-rate scheduler, and whose rate it sets."""

    def __init__(
        self, name: str | None, optimizer: Optimizer | None = None, kind: str | None = None
    ) -> None:
        super().__init__(name)
        self.optimizer = optimizer
        self.kind = kind
        self.horizon: str | None = None  # what its length counts: "updates" or "batches"
        self.skippable = False  # its first value may be lost, as that of a warm-up from zero
        self.accelerator: Accelerator | None = None


class Scaler(Thing):
    """A gradient scaler; `enabled` is None where it is not known."""

    def __init__(self, name: str | None, *, enabled: bool | None = None) -> None:
        super().__init__(name)
        self.enabled = enabled
        self.asked = False  # the source asks whether it is on, or what it has done already


class Net(Thing):
    """A model, a part of one, or a lone parameter."""

    def __init__(
        self, name: str | None, kind: str | None = None, part_of: Net | None = None
    ) -> None:
        super().__init__(name)
        self.serial = next(_SERIALS)  # sets of models have an order by it
        self.kind = kind
        self.part_of: Net | None = None
        self.parts: list[Net] = []
        self.wholes: list[Net] = []
        if part_of is not None:
            self.join(part_of)
        self.cls: Class | None = None
        self.batchnorm: bool | None = None
        self.distributed: str | None = None
        self.frozen: bool = False
        self.sync: bool | None = True
        self.training: bool | None = None
        self.trainable: bool | None = None  # it has parameters of its own
        self.given: frozenset[Net] = frozenset()  # models that its constructor was given
        self.evaluated = False  # somebody puts it into eval mode
        self.modeless = False  # it does the same in train and in eval mode
        self.settled = False  # what has a mode in it came in eval mode, and still is in it
        self.loaded = False  # from a file: it may have been trained already
        self.written = False  # its constructor is in the source

    def join(self, whole: Net) -> None:
        """Become a part of another model, perhaps of several."""
        if whole is self or whole in self.inside():
            return
        if self.part_of is None:
            self.part_of = whole
        if self not in whole.parts:
            whole.parts.append(self)
            self.wholes.append(whole)

    def lineage(self) -> set[Net]:
        """Return itself and everything that it is a part of."""
        if not self.wholes:
            return {self}
        found: set[Net] = set()
        todo: list[Net] = [self]
        while todo:
            net = todo.pop()
            if net not in found:
                found.add(net)
                todo.extend(net.wholes)
        return found

    def spread_over(self) -> str | None:
        """Return how it, or what it is a part of, is distributed over ranks."""
        if not self.wholes:
            return self.distributed or None
        return next((net.distributed for net in self.lineage() if net.distributed), None)

    def inside(self) -> set[Net]:
        """Return itself and its known parts."""
        if not self.parts:
            return {self}
        found: set[Net] = set()
        todo = [self]
        while todo:
            net = todo.pop()
            if net not in found:
                found.add(net)
                todo.extend(net.parts)
        return found

    def forget_mode(self) -> None:
        """Take note that it may be in either mode from now on."""
        for part in self.inside():
            part.training, part.settled = None, False

    def may_train(self) -> None:
        """Take note of train mode for a layer: where it stands for all, the whole may be in it."""
        for whole in self.wholes:
            if whole.attrs.get("[]") is self:
                whole.forget_mode()


def overlap(left: frozenset[Net], right: frozenset[Net]) -> bool:
    """Say whether two sets of models share parameters: one is the other, or a part of it."""
    for one in left:
        above, below = one.lineage(), one.inside()
        for other in right:
            if other in above or other in below or one in other.inside():
                return True
    return False


class Parameters(Thing):
    """The parameters of some models, as `model.parameters()` gives them."""

    def __init__(
        self, nets: frozenset[Net] | None, *, named: bool = False, complete: bool = True
    ) -> None:
        super().__init__()
        self.nets = nets
        self.named = named
        self.complete = complete


class Param(Thing):
    """Every one of some parameters at once: the variable of a loop over them."""

    def __init__(
        self,
        nets: frozenset[Net] | None,
        *,
        complete: bool = True,
        optimizer: Optimizer | None = None,
    ) -> None:
        super().__init__()
        self.nets = nets
        self.complete = complete
        self.optimizer = optimizer


class Grad(Thing):
    """The gradients of those parameters."""

    def __init__(self, param: Param) -> None:
        super().__init__()
        self.param = param


class Loader(Thing):
    """Where batches come from."""

    def __init__(self, name: str | None) -> None:
        super().__init__(name)
        self.batch: int | None = None  # items in a batch, where the source says


class Criterion(Thing):
    """A loss function and what is known about it."""

    def __init__(
        self,
        name: str | None,
        kind: str | None = None,
        reduction: str | None = None,
        *,
        ragged: bool | str | None = None,
        coupled: bool | None = None,
    ) -> None:
        super().__init__(name)
        self.kind = kind
        self.reduction = reduction
        self.ragged = ragged
        self.coupled = coupled


class Accelerator(Thing):
    """Accelerate or Fabric: an object through which backward, clip and step go."""

    def __init__(self, name: str | None, kind: str, steps: Value = 1) -> None:
        super().__init__(name)
        self.kind = kind
        self.steps = steps  # micro-batches that it accumulates over
        self.micro = 0
        self.syncs = True  # the next step is a real one


class Stepper(Thing):
    """instep's own: it makes the updates of its windows by itself."""


class Windows(Thing):
    """What goes through a loader window by window: `stepper.windows(loader, size=n)`."""

    def __init__(self, size: Value = None) -> None:
        super().__init__()
        self.size = size  # micro-batches of a window


class Window(Thing):
    """An open window of a stepper: it divides and steps at its end, whatever its losses are."""

    def __init__(self, size: Value = None) -> None:
        super().__init__()
        self.size = size
