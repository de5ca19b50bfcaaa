"""Promise 10: save anywhere, resume, and the result is bit for bit that of never having stopped."""

from __future__ import annotations

import copy
import io
import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import instep
from instep.distributed import shard
from instep.errors import StateError, WindowError
from tests.engine.kit import assert_bit_identical, batches, mean_loss, mlp


class Augmented(Dataset):
    """Draws from torch's generator in whichever process loads it, like real augmentation."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(5, generator=generator) + 0.1 * torch.randn(5)
        return x, index % 3


class Job:
    """A training job as a user would write it, with dropout and a scheduler."""

    def __init__(self, *, workers: int = 0, **options) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.7)
        self.stepper = instep.Stepper(
            self.model, self.optimizer, scheduler=self.scheduler, **options
        )
        generator = torch.Generator().manual_seed(11)
        self.loader = DataLoader(
            Augmented(), batch_size=3, shuffle=True, num_workers=workers, generator=generator
        )

    def save(self) -> bytes:
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "stepper": self.stepper.state_dict(),
        }
        buffer = io.BytesIO()
        torch.save(parts, buffer)
        return buffer.getvalue()

    def load(self, saved: bytes) -> None:
        parts = torch.load(io.BytesIO(saved), weights_only=True)
        self.model.load_state_dict(parts["model"])
        self.optimizer.load_state_dict(parts["optimizer"])
        self.scheduler.load_state_dict(parts["scheduler"])
        self.stepper.load_state_dict(parts["stepper"])

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(x), y)

    def epoch(self, *, stop: tuple[int, str] | None = None, **options) -> tuple[bytes | None, list]:
        """Run an epoch; stop = (batch, moment): save there, keep going to the end all the same."""
        saved, log, seen = None, [], 0
        for window in self.stepper.windows(self.loader, size=3, **options):
            if stop == (seen, "window"):
                saved = self.save()
            for x, y in window:
                if stop == (seen, "before"):
                    saved = self.save()
                loss = self.loss(x, y)
                if stop == (seen, "forward"):
                    saved = self.save()
                window.backward(loss, items=len(y))
                if stop == (seen, "after"):
                    saved = self.save()
                seen += 1
            log.append((window.loss, window.grad_norm))
            if stop == (seen, "closed"):
                saved = self.save()
        return saved, log


MOMENTS = [(batch, m) for batch in range(8) for m in ("before", "forward", "after")]
MOMENTS += [(batch, "window") for batch in (0, 3, 6)] + [(3, "closed"), (8, "closed")]


@pytest.mark.parametrize("options", [{}, {"count": lambda batch: len(batch[1])}], ids=["", "ahead"])
@pytest.mark.parametrize("stop", MOMENTS, ids=str)
def test_resume_is_bit_identical_wherever_it_was_saved(stop, options):
    job = Job()
    job.epoch()
    saved, log = job.epoch(stop=stop, **options)
    job.epoch()
    assert saved is not None
    torch.manual_seed(99)
    resumed = Job()
    resumed.load(saved)
    _, tail = resumed.epoch(**options)
    assert tail == log[len(log) - len(tail) :]
    resumed.epoch()
    assert_bit_identical(resumed.model, job.model)
    assert resumed.scheduler.last_epoch == job.scheduler.last_epoch


@pytest.mark.parametrize(
    "stop", [(1, "after"), (4, "before"), (7, "after"), (3, "window")], ids=str
)
def test_resume_is_bit_identical_with_workers(stop):
    job = Job(workers=2)
    saved, _ = job.epoch(stop=stop)
    resumed = Job(workers=2)
    resumed.load(saved)
    resumed.epoch()
    assert_bit_identical(resumed.model, job.model)


def test_resume_with_a_scaler_and_narrow_parameters():
    def build() -> Job:
        job = Job(precision="fp16", scaler=torch.amp.GradScaler("cpu", growth_interval=2))
        job.model.to(torch.bfloat16)
        job.loss = lambda x, y: nn.functional.cross_entropy(job.model(x.bfloat16()).float(), y)
        return job

    job = build()
    saved, _ = job.epoch(stop=(4, "after"))
    resumed = build()
    resumed.load(saved)
    resumed.epoch()
    assert_bit_identical(resumed.model, job.model)
    assert resumed.stepper.scaler.state_dict() == job.stepper.scaler.state_dict()


def test_resume_of_several_optimizers_and_terms():
    data = [x for x, _ in batches([2, 3, 1, 4, 2, 2])]

    def build() -> tuple:
        left, right = mlp(1), mlp(2)
        optimizers = {
            "left": torch.optim.Adam(left.parameters()),
            "right": torch.optim.Adam(right.parameters()),
        }
        return left, right, optimizers, instep.Stepper([left, right], optimizers)

    def run(left, right, stepper, optimizers, stop=None):
        saved, seen = None, 0
        for window in stepper.windows(data, size={"left": 2, "right": 4}):
            for x in window:
                out = left(x)
                terms = {"a": out.square().mean(), "b": (out - right(x)).square().mean()}
                window.backward(terms, items={"a": len(x), "b": 2 * len(x)}, optimizer="left")
                window.backward(right(x).square().mean(), items=len(x), optimizer="right")
                seen += 1
                if seen == stop:
                    saved = copy.deepcopy(
                        [
                            left.state_dict(),
                            right.state_dict(),
                            {n: o.state_dict() for n, o in optimizers.items()},
                            stepper.state_dict(),
                        ]
                    )
        return saved

    for stop in range(1, 7):
        left, right, optimizers, stepper = build()
        saved = run(left, right, stepper, optimizers, stop)
        again_left, again_right, again_optimizers, again = build()
        again_left.load_state_dict(saved[0])
        again_right.load_state_dict(saved[1])
        for name, state in saved[2].items():
            again_optimizers[name].load_state_dict(state)
        again.load_state_dict(saved[3])
        run(again_left, again_right, again, again_optimizers)
        assert_bit_identical(left, again_left)
        assert_bit_identical(right, again_right)


def test_python_and_numpy_generators_come_back():
    job = Job()
    state = job.stepper.state_dict()
    drawn = (random.random(), np.random.rand(), torch.rand(1).item())
    random.random()
    job.stepper.load_state_dict(state)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn


def test_a_window_opened_by_hand_continues():
    model = mlp()
    data = batches([2, 3])
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    start = copy.deepcopy(model)
    with stepper.window() as window:
        window.backward(mean_loss(model, *data[0]), items=2)
        state = stepper.state_dict()
        window.backward(mean_loss(model, *data[1]), items=3)
    again = copy.deepcopy(start)
    resumed = instep.Stepper(again, torch.optim.SGD(again.parameters(), lr=0.1))
    resumed.load_state_dict(state)
    with pytest.raises(WindowError, match="waits in the middle"):
        resumed.step(data[0][0], lambda x: again(x).mean())
    with pytest.raises(StateError, match="a window opened by hand, this is windows of 2"):
        next(iter(resumed.windows(data, size=2)))
    with resumed.window() as window:
        window.backward(mean_loss(again, *data[1]), items=3)
    assert_bit_identical(again, model)


def test_a_state_that_does_not_fit_changes_nothing():
    job = Job()
    saved, _ = job.epoch(stop=(1, "after"))
    state = torch.load(io.BytesIO(saved), weights_only=True)["stepper"]
    fresh = Job()
    before = fresh.stepper.state_dict()
    wrong_version = {**state, "version": 99}
    wrong_names = {**state, "lanes": {"other": state["lanes"]["optimizer"]}}
    wrong_shape = copy.deepcopy(state)
    wrong_shape["lanes"]["optimizer"]["window"]["buffers"]["loss"][0] = torch.zeros(1)
    for bad in (wrong_version, wrong_names, wrong_shape, {}, None, {"model": 1}):
        with pytest.raises(StateError, match="does not fit"):
            fresh.stepper.load_state_dict(bad)
    assert fresh.stepper.state_dict()["place"] == before["place"] is None
    for window in job.stepper.windows(job.loader, size=3):
        with pytest.raises(WindowError, match="inside a window"):
            job.stepper.load_state_dict(state)
        window.discard()
        break


def test_a_loader_that_became_shorter_is_said_and_the_state_is_kept():
    job = Job()
    saved, _ = job.epoch(stop=(6, "after"))
    resumed = Job()
    resumed.load(saved)
    short = DataLoader(Augmented(), batch_size=8, shuffle=True, generator=torch.Generator())
    for other, why in ((short, "ended before batch 7"), ([1, 2], "no generator")):
        with pytest.raises(StateError, match=why):
            next(iter(resumed.stepper.windows(other, size=3)))
    resumed.epoch()
    assert_bit_identical(resumed.model, job.model)


def test_discard_forgets_a_loaded_window():
    job = Job()
    saved, _ = job.epoch(stop=(1, "after"))
    resumed = Job()
    resumed.load(saved)
    resumed.stepper.discard()
    _, log = resumed.epoch()
    assert len(log) == 3


@pytest.mark.parametrize("epochs_before", [0, 1])
@pytest.mark.parametrize("fresh_loader", [True, False])
def test_persistent_workers_resume_with_the_same_batches(epochs_before, fresh_loader):
    """Their first epoch draws a seed that later ones do not; the order must follow it."""

    def loader():
        return DataLoader(
            list(range(7)), shuffle=True, num_workers=1, persistent_workers=True, batch_size=1
        )

    def job():
        torch.manual_seed(4)
        model = nn.Linear(1, 1)
        return model, instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def epoch(model, stepper, data, stop=None):
        seen, saved = [], None
        for window in stepper.windows(data, size=2):
            for x in window:
                window.backward(model(x.float()).sum(), items=1)
                seen.append(int(x))
                if len(seen) == stop:
                    saved = stepper.state_dict()
        return seen, saved

    data = loader()
    model, stepper = job()
    for _ in range(epochs_before):
        epoch(model, stepper, data)
    whole, saved = epoch(model, stepper, data, stop=3)
    other, resumed = job()
    resumed.load_state_dict(saved)
    rest, _ = epoch(other, resumed, loader() if fresh_loader else data)
    assert rest == whole[3:]


@pytest.mark.parametrize("has_own", [False, True], ids=["torch's generator", "its own"])
@pytest.mark.parametrize("fresh_loader", [True, False])
@pytest.mark.parametrize("is_dealt", [False, True])
def test_persistent_workers_saved_between_epochs(is_dealt, fresh_loader, has_own):
    """Workers that stay have their seeds; those of a new process draw them anew."""

    def loader():
        made = DataLoader(
            list(range(7)),
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
            generator=torch.Generator().manual_seed(2) if has_own else None,
        )
        return instep.distributed.shard(made) if is_dealt else made

    def job():
        torch.manual_seed(4)
        model = nn.Linear(1, 1)
        return instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    stepper, data = job(), loader()
    list(stepper.batches(data))
    saved = stepper.state_dict()
    whole = [int(x) for _ in range(2) for x in stepper.batches(data)]
    resumed, again = job(), loader() if fresh_loader else data
    resumed.load_state_dict(saved)
    # As it was loaded: a state that is saved again, before its loop, has it too.
    resumed.load_state_dict(resumed.state_dict())
    assert [int(x) for _ in range(2) for x in resumed.batches(again)] == whole


@pytest.mark.parametrize("has_own", [False, True], ids=["torch's generator", "its own"])
@pytest.mark.parametrize("epochs", [2, 3])
def test_workers_that_end_with_a_loader_that_is_dealt_out_anew(epochs, has_own):
    """Each loop has new ones, which draw their seeds, before a run was saved and after it."""

    def job():
        torch.manual_seed(4)
        model = nn.Linear(1, 1)
        loader = DataLoader(
            list(range(7)),
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
            generator=torch.Generator().manual_seed(2) if has_own else None,
        )
        return instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1)), loader

    def epoch(stepper, loader):
        return [int(x) for x in stepper.batches(instep.distributed.shard(loader))], torch.rand(())

    stepper, loader = job()
    for _ in range(epochs):
        epoch(stepper, loader)
    saved = copy.deepcopy(stepper.state_dict())
    whole = [epoch(stepper, loader) for _ in range(3)]
    resumed, loader = job()
    resumed.load_state_dict(saved)
    first = epoch(resumed, loader)
    # Interrupted once more.
    saved = copy.deepcopy(resumed.state_dict())
    resumed, loader = job()
    resumed.load_state_dict(saved)
    assert [first, epoch(resumed, loader), epoch(resumed, loader)] == whole


class Inside:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from self.loader


@pytest.mark.parametrize("kind", ["its own", "dealt out", "dealt out anew", "inside of another"])
@pytest.mark.parametrize("stop", [(0, 3), (0, 6), (1, 1), (1, 4), (1, 6)])
def test_who_draws_from_the_same_generator_besides_moves_no_order(kind, stop):
    """A validation in the middle of an epoch and behind it, which a resumed run has behind it."""

    def run(stop=None, saved=None):
        torch.manual_seed(4)
        model = nn.Linear(1, 1)
        own = torch.Generator().manual_seed(2) if kind == "its own" else None
        loader = DataLoader(list(range(12)), 2, shuffle=True, generator=own)
        once = loader if kind == "its own" else instep.distributed.shard(loader)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
        if saved is not None:
            stepper.load_state_dict(saved[0])
        batches, seen = 0 if saved is None else saved[1], []

        def made():
            return instep.distributed.shard(loader) if kind == "dealt out anew" else once

        for epoch in stepper.epochs(3):
            dealt, besides = made(), made()
            for window in stepper.windows(
                Inside(dealt) if kind.startswith("in") else dealt, size=1
            ):
                for x in window:
                    seen.append(x.tolist())
                    window.backward(model(x[:, None].float()).sum(), items=1)
                batches += 1
                if batches % 6 == 1:
                    list(besides)
                if (epoch, batches % 6 or 6) == stop and batches % 6:
                    return seen, (copy.deepcopy(stepper.state_dict()), batches)
            list(besides)
            if (epoch, 6) == stop:
                return seen, (copy.deepcopy(stepper.state_dict()), batches)
        return seen, None

    whole, _ = run()
    begun, saved = run(stop)
    rest, _ = run(saved=saved)
    assert begun + rest == whole


def test_a_batch_that_was_broken_off_does_not_come_again():
    model = mlp()
    data = batches([2] * 8)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    seen, state = [], None
    for window in stepper.windows(list(enumerate(data)), size=2):
        for index, batch in window:
            if index == 1:
                window.discard()
                break
            seen.append(index)
            window.backward(mean_loss(model, *batch), items=2)
        if index == 3:
            state = stepper.state_dict()
            break
    resumed = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    resumed.load_state_dict(state)
    for window in resumed.windows(list(enumerate(data)), size=2):
        for index, batch in window:
            seen.append(index)
            window.backward(mean_loss(model, *batch), items=2)
    assert seen == [0, 2, 3, 4, 5, 6, 7]


def test_places_that_cannot_be_resumed_from_are_refused():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = instep.Stepper(model, optimizer)
    data = batches([2] * 4)
    refused = []

    def attempt(*_):
        with pytest.raises(WindowError, match="cannot be resumed") as caught:
            stepper.state_dict()
        refused.append(caught.value.why)

    handle = optimizer.register_step_post_hook(attempt)
    for window in stepper.windows(data, size=2):
        for batch in window:
            window.backward(mean_loss(model, *batch), items=2)
        stepper.step(data[0], lambda batch: attempt() or mean_loss(model, *batch))
        break
    handle.remove()
    for window in stepper.windows(data, size=2):
        for batch in window:
            window.backward(mean_loss(model, *batch), items=2)
            break
        attempt()
        window.discard()
        for inner in stepper.windows(data, size=4):
            for batch in inner:
                inner.backward(mean_loss(model, *batch), items=2)
                attempt()
        break
    assert len(set(refused)) == 4


def test_other_work_between_windows_does_not_disturb_the_place():
    def build():
        model = mlp()
        return model, instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    data = batches([2] * 6)

    def run(model, stepper, stop=None):
        saved, seen = None, 0
        for window in stepper.windows(data, size=2):
            for batch in window:
                window.backward(mean_loss(model, *batch), items=2)
                seen += 1
                if seen == stop:
                    saved = copy.deepcopy([model.state_dict(), stepper.state_dict()])
            stepper.step(data[0], lambda batch: mean_loss(model, *batch))
            for inner in stepper.windows(data[:2], size=2):
                for batch in inner:
                    inner.backward(mean_loss(model, *batch), items=2)
            with stepper.window() as by_hand:
                by_hand.backward(mean_loss(model, *data[1]), items=2)
            stepper.discard()
        return saved

    for stop in range(1, 7):
        model, stepper = build()
        saved = run(model, stepper, stop)
        again, resumed = build()
        again.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        run(again, resumed)
        assert_bit_identical(model, again)


def test_gradients_of_another_type_do_not_fit():
    model = mlp()
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with stepper.window() as window:
        window.backward(mean_loss(model, *batches([2])[0]), items=2)
        state = stepper.state_dict()
    narrow = mlp(dtype=torch.float32)
    other = instep.Stepper(narrow, torch.optim.SGD(narrow.parameters(), lr=0.1))
    with pytest.raises(StateError, match=r"float32, its gradient torch\.float64"):
        other.load_state_dict(state)
    del state["lanes"]["optimizer"]["window"]
    with pytest.raises(StateError, match="no stepper state"):
        stepper.load_state_dict(state)


@pytest.mark.parametrize("ahead", [True, False])
def test_everything_closed_by_hand_is_a_place_to_come_back_to(ahead):
    data = batches([2] * 6)

    def build():
        model = mlp()
        return model, instep.Stepper(
            model, torch.optim.SGD(model.parameters(), lr=0.1), empty="raise"
        )

    def run(model, stepper, stop=None):
        seen, saved = [], None
        count = (lambda entry: 2) if ahead else None
        for window in stepper.windows(list(enumerate(data)), size=2, count=count):
            for index, batch in window:
                seen.append(index)
                window.backward(mean_loss(model, *batch), items=2)
                if window.due():
                    window.close("optimizer")
                if index == stop:
                    saved = copy.deepcopy([model.state_dict(), stepper.state_dict()])
        return seen, saved

    for stop in range(6):
        model, stepper = build()
        _, saved = run(model, stepper, stop)
        again, resumed = build()
        again.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        seen, _ = run(again, resumed)
        assert seen == list(range(stop + 1, 6))
        assert_bit_identical(model, again)


def test_a_step_before_the_loop_does_not_lose_the_place():
    job = Job()
    saved, _ = job.epoch(stop=(3, "closed"))
    resumed = Job()
    resumed.load(saved)
    resumed.stepper.step(torch.ones(2, 5), lambda x: resumed.model(x).square().mean())
    _, log = resumed.epoch()
    assert len(log) == 2


@pytest.mark.parametrize("deal", [False, True], ids=["a generator of its own", "dealt out"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_state_from_between_epochs_goes_on_with_the_next_order(deal, epochs):
    def built():
        torch.manual_seed(0)
        model = nn.Linear(1, 1)
        stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
        generator = torch.Generator().manual_seed(5)
        data = torch.arange(12.0)[:, None]
        loader = DataLoader(data, batch_size=2, shuffle=True, generator=generator)
        return model, stepper, shard(loader) if deal else loader

    def epoch(model, stepper, loader):
        seen = []
        for window in stepper.windows(loader, size=2):
            for x in window:
                seen += x.flatten().tolist()
                window.backward(model(x).square().mean(), items=len(x))
        return seen

    straight = built()
    orders = [epoch(*straight) for _ in range(epochs)]
    # Tensors of a generator's state change in place: what was saved must not.
    saved = copy.deepcopy(straight[1].state_dict())
    orders += [epoch(*straight), epoch(*straight)]
    assert len({tuple(order) for order in orders}) == len(orders)
    resumed = built()
    resumed[1].load_state_dict(saved)
    again = copy.deepcopy(resumed[1].state_dict())
    assert torch.equal(*(next(iter(s["generators"].values())) for s in (saved, again)))
    assert [epoch(*resumed), epoch(*resumed)] == orders[epochs:]


def test_a_new_epoch_may_have_a_loader_without_a_generator():
    model = nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.01))
    data = torch.arange(4.0)[:, None]
    loader = DataLoader(data, shuffle=True, generator=torch.Generator())
    seen = []
    for _ in range(2):
        for window in stepper.windows(loader, size=2):
            for x in window:
                seen.append(x.item())
                window.backward(model(x).square().mean(), items=len(x))
        stepper.load_state_dict(stepper.state_dict())
        loader = DataLoader(data)
    assert sorted(seen[:4]) == seen[4:] == [0.0, 1.0, 2.0, 3.0]


class Restless(torch.utils.data.Sampler):
    """Draws from torch's own generator once more when it is at its end."""

    def __iter__(self):
        yield from torch.randperm(5).tolist()
        torch.rand(())

    def __len__(self):
        return 5


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stop", range(1, 9))
@pytest.mark.parametrize("kind", ["a generator of its own", "counted ahead", "torch's generator"])
def test_orders_go_on_after_a_save_at_the_end_of_a_loader(kind, stop, workers):
    """Torch's sampler draws once more where it ends, and a save may come before or after that."""
    count = len if kind == "counted ahead" else None

    def job():
        torch.manual_seed(4)
        model = nn.Linear(1, 1)
        data = torch.arange(5.0)[:, None]
        if kind == "torch's generator":
            loader = DataLoader(data, sampler=Restless(), num_workers=workers)
        else:
            own = torch.Generator().manual_seed(7)
            loader = DataLoader(data, shuffle=True, generator=own, num_workers=workers)
        return model, instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1)), loader

    def drawn(model, stepper, loader, at=None):
        """Return what was drawn, and at the end of which window it was saved."""
        seen, saved = [], None
        epochs = (stepper.windows(loader, size=2, count=count) for _ in stepper.epochs(3))
        for window in itertools.chain.from_iterable(epochs):
            for x in window:
                window.backward(model(x).square().mean(), items=len(x))
                seen.append(int(x))
            seen.append("closed")
            if window.index + 1 == at:
                saved = len(seen), copy.deepcopy(stepper.state_dict())
        return seen, saved

    whole, (at, saved) = drawn(*job(), at=stop)
    model, stepper, loader = job()
    stepper.load_state_dict(saved)
    assert drawn(model, stepper, loader)[0] == whole[at:]
