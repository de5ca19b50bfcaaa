"""Jobs with a loss scale: what is multiplied by it on purpose, and what is not."""

import pytest
import torch

import instep
from tests.watching.jobs import found, run

LOOP = """
model = torch.nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale={scale}, growth_interval={interval})
{begin}
for update in range(24):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(torch.randn(4, 6)), torch.randint(0, 3, (4,)))
    {backward}
    {clip}
    scaler.step(optimizer)
    scaler.update()
"""


def job(backward, clip="pass", *, begin="", scale=512.0, interval=2000):
    return run(
        LOOP.format(backward=backward, clip=clip, begin=begin, scale=scale, interval=interval)
    )


CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), {})"
SCALED = "scaler.scale(loss).backward()"


@pytest.mark.parametrize("scale", [64.0, 512.0, 65536.0])
@pytest.mark.parametrize("limit", [1.0, 0.5])
@pytest.mark.parametrize("interval", [2000, 2])
def test_a_limit_that_is_multiplied_by_the_scale(scale, limit, interval):
    clip = CLIP.format(f"{limit} * scaler.get_scale()")
    assert found(job(SCALED, clip, scale=scale, interval=interval)) == []


@pytest.mark.parametrize("scale", [64.0, 512.0, 65536.0])
@pytest.mark.parametrize("limit", [1.0, 5.0])
def test_a_limit_that_is_not(scale, limit):
    watched = job(SCALED, CLIP.format(limit), scale=scale)
    assert found(watched) == [("INS303", 10)]
    assert f"{scale:,.6g}× too large" in watched.findings[0].message


@pytest.mark.parametrize("interval", [2000, 2])
@pytest.mark.parametrize("weight", ["", " * 0.01"])
def test_a_loss_that_is_scaled_by_hand(weight, interval):
    backward = f"(loss * scaler.get_scale(){weight}).backward()"
    begin = "scaler.scale(torch.ones(1))"
    assert found(job(backward, begin=begin, interval=interval)) == []


def test_a_loss_that_is_not_scaled_by_a_scaler_that_is_at_work():
    watched = job("scaler.scale(loss); loss.backward()", scale=64.0)
    assert found(watched) == [("INS306", 9)]
    message = watched.findings[0].message
    assert message.endswith("the update of `optimizer` is up to 64 times too small.")
    assert "raises" not in message


def test_a_step_that_raises_is_neither_made_nor_skipped():
    source = LOOP.replace("    scaler.update()\n", "    again()\n").format(
        backward=SCALED, clip="pass", begin="", scale=8.0, interval=2000
    )
    watched = instep.Job()

    def again():
        with pytest.raises(RuntimeError, match="already been called"):
            left["scaler"].step(left["optimizer"])
        left["scaler"].update()

    left = {"torch": torch, "F": torch.nn.functional, "again": again}
    with watched:
        exec(compile(source, "train.py", "exec"), left)  # noqa: S102  # it is the test's own
    assert watched.series.updates == {"optimizer": 24}
    assert watched.series.skipped == {}
    assert "skipped" not in watched.summary()
