"""What real code taught about clipping and loss scaling."""

from __future__ import annotations

import pytest

from tests.check.repairs import MADE, codes


def test_what_a_scaler_scales_is_a_loss_whatever_it_looks_like():
    text = """\
scaler = torch.amp.GradScaler("cuda")
def total(outputs):
    return 0
for x, y in loader:
    optimizer.zero_grad()
    scaler.scale(total(model(x))).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    assert codes(MADE + text) == set()


def test_a_clip_whose_gradients_are_cleared_before_the_step_limits_nothing():
    text = """\
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    scaler.scale(F.mse_loss(model(x), y)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {}
    scaler.scale(F.mse_loss(model(attacked(x)), y)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
    assert "INS303" not in codes(MADE + text.format("optimizer.zero_grad()"))
    assert "INS303" in codes(MADE + text.format("print(x)"))


def test_a_clip_between_two_steps_is_felt_by_the_second():
    text = (
        MADE
        + """\
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {}
"""
    )
    assert codes(text.format("optimizer.step()")) == {"INS104"}
    assert codes(text.format("pass")) == {"INS302"}


SCALED = (
    MADE
    + """\
scaler = torch.amp.GradScaler()
for x, y in loader:
    with torch.autocast("cuda"):
        loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    {unscale}
    torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})
    scaler.step(optimizer)
    scaler.update()
"""
)


def test_an_optimizer_that_is_named_is_unscaled():
    named = "scaler.unscale_(optimizer=optimizer)"
    assert codes(SCALED.format(unscale=named, limit="1.0")) == set()
    assert "INS307" in codes(SCALED.format(unscale=f"{named}; {named}", limit="1.0"))
    assert "INS303" in codes(SCALED.format(unscale="pass", limit="1.0"))


@pytest.mark.parametrize("limit", ["float('inf')", "float('INF')", "torch.inf", "math.inf"])
def test_a_clip_without_a_limit_only_measures(limit):
    assert "INS303" not in codes("import math\n" + SCALED.format(unscale="pass", limit=limit))
