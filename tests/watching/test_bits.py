"""Watching changes no bit of a job, and leaves nothing behind."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import instep
from tests.distributed.crew import run_once


def net(dropout=0.0):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))


def batches(count=12, size=4):
    return [(torch.randn(size, 6), torch.randint(3, (size,))) for _ in range(count)]


def flat(state):
    """Every tensor and number of a state, in order, as bytes where it is a tensor."""
    if isinstance(state, torch.Tensor):
        raw = state.contiguous().view(-1).view(torch.uint8)
        return str(state.dtype), tuple(state.shape), bytes(raw.tolist())
    if isinstance(state, dict):
        return tuple((key, flat(state[key])) for key in sorted(state, key=str))
    if isinstance(state, list | tuple):
        return tuple(map(flat, state))
    return state


# Each job trains and returns everything whose bits count.


def plain(kind=torch.optim.SGD, *, dropout=0.0, accumulate=1, clip=None, **options):
    def job():
        model = net(dropout)
        optimizer = kind(model.parameters(), **options)
        for number, (inputs, labels) in enumerate(batches(), start=1):
            loss = cross_entropy(model(inputs), labels) / accumulate
            loss.backward()
            if number % accumulate == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                    nn.utils.clip_grad_value_(model.parameters(), clip / 2)
                optimizer.step()
                optimizer.zero_grad()
        return model.state_dict(), optimizer.state_dict()

    return job


def half_with_scaler():
    model, scaler = net(), torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for inputs, labels in batches(40):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = cross_entropy(model(inputs), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return model.state_dict(), optimizer.state_dict(), scaler.state_dict()


def brain_autocast():
    model = net(0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for inputs, labels in batches():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return model.state_dict(), optimizer.state_dict()


def brain_weights():
    model = net().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for number, (inputs, labels) in enumerate(batches(40), start=1):
        cross_entropy(model(inputs.bfloat16()), labels).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict(), optimizer.state_dict()


def two_optimizers():
    one, two = net(0.2), nn.Linear(3, 6)
    first = torch.optim.Adam(one.parameters(), lr=1e-2)
    second = torch.optim.RMSprop(two.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(first, 12)
    for inputs, labels in batches():
        second.zero_grad()
        (two(one(inputs).detach()) - inputs).square().mean().backward()
        second.step()
        first.zero_grad()
        hidden = one(inputs)
        (cross_entropy(hidden, labels) + two(hidden).abs().sum() * 0.01).backward()
        first.step()
        schedule.step()
    return one.state_dict(), two.state_dict(), first.state_dict(), second.state_dict()


def closure():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    inputs, labels = batches(1, 16)[0]

    def compute():
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(compute)
    return model.state_dict(), optimizer.state_dict()


def workers():
    model = net(0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, labels = torch.randn(24, 6), torch.randint(3, (24,))
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=5, shuffle=True, num_workers=2)
    for _ in range(2):
        for some, wanted in loader:
            optimizer.zero_grad()
            cross_entropy(model(some), wanted).backward()
            optimizer.step()
    return model.state_dict(), optimizer.state_dict()


def checkpointed(*, reentrant):
    def job():
        first, second = net(0.4), nn.Linear(3, 3)
        optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2)
        for inputs, labels in batches():
            inputs.requires_grad_()  # the reentrant kind asks for it
            hidden = checkpoint(first, inputs, use_reentrant=reentrant)
            loss = cross_entropy(second(hidden), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return first.state_dict(), second.state_dict(), optimizer.state_dict()

    return job


def own_hooks():
    """Hooks of the user's own are called as often, in their order, with the same values."""
    model, heard = net(0.2), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.register_forward_pre_hook(lambda *_: heard.append("before"))
    model.register_forward_hook(lambda *_: heard.append("after"))
    model[3].register_full_backward_hook(lambda *_: heard.append("backward"))
    model[0].weight.register_hook(lambda grad: grad * 0.5)
    model[3].weight.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad.sum().item()))
    optimizer.register_step_pre_hook(lambda *_: heard.append("step"))
    optimizer.register_step_post_hook(lambda *_: heard.append("stepped"))
    for inputs, labels in batches(4):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return heard, model.state_dict()


def edited_by_hand():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in batches():
        for parameter in model.parameters():
            parameter.grad = None
        cross_entropy(model(inputs), labels).backward()
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
        optimizer.step()
    return model.state_dict()


def compiled(backend):
    def job():
        torch.compiler.reset()
        inner = net()
        model = torch.compile(inner, backend=backend)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for inputs, labels in batches():
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        return inner.state_dict(), optimizer.state_dict()

    return job


JOBS = {
    "sgd": plain(lr=0.1, momentum=0.9),
    "adamw": plain(torch.optim.AdamW, lr=1e-2),
    "fused": plain(torch.optim.AdamW, lr=1e-2, fused=True),
    "foreach": plain(torch.optim.Adam, lr=1e-2, foreach=True),
    "adagrad": plain(torch.optim.Adagrad, lr=1e-2),
    "rmsprop": plain(torch.optim.RMSprop, lr=1e-2),
    "dropout": plain(lr=0.1, dropout=0.5),
    "clipping": plain(lr=0.1, clip=0.1),
    "accumulation": plain(torch.optim.Adam, lr=1e-2, accumulate=4, dropout=0.2, clip=1.0),
    "fp16 scaler": half_with_scaler,
    "bf16 autocast": brain_autocast,
    "bf16 weights": brain_weights,
    "two optimizers": two_optimizers,
    "closure": closure,
    "loader with workers": workers,
    "checkpoint": checkpointed(reentrant=False),
    "reentrant checkpoint": checkpointed(reentrant=True),
    "hooks": own_hooks,
    "by hand": edited_by_hand,
    "compiled": compiled("aot_eager"),
}


def bits(job, watching):
    torch.manual_seed(7)
    with watching:
        done = job()
        return flat(done), flat(torch.get_rng_state())


def same_bits(job):
    watched = instep.watch()
    expected = bits(job, nullcontext())
    assert bits(job, watched) == expected
    assert watched.seam.faults == []
    assert any(event.kind == "step" for event in watched.trace)


# To compile warns of what torch itself still uses, a different thing in each release and Python.
COMPILING = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=COMPILING if name == "compiled" else ()) for name in JOBS]
)
def test_same_bits(name):
    same_bits(JOBS[name])


@COMPILING
@pytest.mark.slow
def test_same_bits_in_compiled_code():
    same_bits(compiled("inductor"))


def test_the_comparison_sees_a_bit():
    """A watcher that draws a random number, or changes one bit of a weight, would be noticed."""
    expected = bits(JOBS["dropout"], nullcontext())

    class Drawing(nullcontext):
        def __enter__(self):
            torch.rand(())

    assert bits(JOBS["dropout"], Drawing()) != expected
    weight = torch.ones(3)
    nudged = weight.clone()
    nudged[1] = torch.nextafter(nudged[1], torch.tensor(2.0))
    assert flat(weight) != flat(nudged)


def _on_rank(rank, watching):
    torch.manual_seed(7)
    with watching:
        model = nn.parallel.DistributedDataParallel(net(0.3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        torch.manual_seed(rank)
        for number, (inputs, labels) in enumerate(batches(8), start=1):
            sync = number % 2 == 0
            with nullcontext() if sync else model.no_sync():
                (cross_entropy(model(inputs), labels) / 2).backward()
            if sync:
                optimizer.step()
                optimizer.zero_grad()
    return flat([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()])


def _rank(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    watched = instep.watch()
    expected, found = _on_rank(rank, nullcontext()), _on_rank(rank, watched)
    torch.distributed.destroy_process_group()
    assert found == expected
    assert watched.seam.faults == []
    assert any(event.kind == "step" for event in watched.trace)


def test_same_bits_on_two_ranks(tmp_path):
    """A rank whose bits differ raises, and so does `run_once`."""
    run_once(2, _rank, str(tmp_path))
