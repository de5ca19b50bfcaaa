"""A rank whose update fails when the others have made theirs."""

from __future__ import annotations

import pytest
import torch

import instep
from instep.errors import CheckpointError, WindowError
from tests.distributed.kit import dealt, spread, values
from tests.engine.kit import mean_loss, mlp

SIZES = [[3, 4, 1, 2, 3, 2], [2, 3, 5, 1, 1, 4]]


class HookError(Exception):
    pass


def own(model):
    """What this rank holds itself: nothing is sent for it."""
    held = [getattr(p, "to_local", lambda p=p: p)() for p in model.parameters()]
    return [p.detach().flatten().tolist() for p in held]


def fail_inside(rank, world, kind, several, path):
    """Rank 1's optimizer raises in its second update; all go on, and load in the end."""
    plain = mlp()
    model = spread(plain, kind)
    parameters = list(model.parameters())
    groups = [parameters[:-1], parameters[-1:]] if several else [parameters]
    optimizers = [torch.optim.Adam(group, lr=0.1) for group in groups]
    steps = []

    def stumble(*_):
        steps.append(1)
        if rank == 1 and len(steps) == 2:
            raise HookError("no room for a log")

    optimizers[-1].register_step_pre_hook(stumble)
    stepper = instep.Stepper(model, optimizers if several else optimizers[0])
    stepper.save(path)
    said, seen = [], []
    data = dealt(SIZES)[rank]
    for x, y in data[:5]:
        try:
            with stepper.window() as window:
                window.backward(mean_loss(model, x, y), items=len(y))
        except (WindowError, HookError) as error:
            said.append(str(error))
        else:
            said.append("updated")
        seen.append(own(plain))
    with pytest.raises((WindowError, CheckpointError)):
        stepper.load(f"{path}.nowhere")
    with pytest.raises(WindowError):
        stepper.save(path)
    stepper.load(path)
    before = values(plain)
    for x, y in data:
        with stepper.window() as window:
            window.backward(mean_loss(model, x, y), items=len(y))
    return said, seen, before, values(plain)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("several", [False, True])
def test_nothing_goes_on_until_a_checkpoint_is_loaded(two, tmp_path, kind, several):
    found = two.run(fail_inside, kind, several, str(tmp_path / "run"))
    (said, seen, before, after), (torn, seen_there, before_there, after_there) = found
    assert (said[0], torn[0], torn[1]) == ("updated", "updated", "no room for a log")
    assert said[1] == "updated"
    for text in said[2:]:
        assert text.startswith("rank 1 gave up")
        assert "HookError: no room for a log" in text
    for text in torn[2:]:
        assert text.startswith("this rank has not made an update that the others have")
        assert "HookError: no room for a log (in the update of 'optimizer')" in text
    # Nobody has updated after it.
    assert seen[1] == seen[2] == seen[3] == seen[4]
    assert seen_there[1] == seen_there[2] == seen_there[3] == seen_there[4]
    assert before == before_there
    assert after == after_there
    assert after != before
