from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from instep.engine.scaling import LARGEST_FLOAT32, LossScale, Scaling


def torch_scale(scaler: torch.amp.GradScaler, *, overflowed: bool) -> None:
    """Let torch's own scaler see one update that overflowed or not."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter.sum())  # makes the scale tensor
    parameter.grad = torch.full((1,), torch.inf if overflowed else 1.0)
    scaler.step(optimizer)
    scaler.update()


@given(
    outcomes=st.lists(st.booleans(), max_size=30),
    init=st.sampled_from([1.0, 2.0**16, 2.0**126]),
    growth=st.sampled_from([2.0, 3.0]),
    backoff=st.sampled_from([0.5, 0.3]),
    interval=st.integers(1, 4),
)
def test_the_policy_is_that_of_torch(outcomes, init, growth, backoff, interval):
    options = {"growth_factor": growth, "backoff_factor": backoff, "growth_interval": interval}
    scaler = torch.amp.GradScaler("cpu", init_scale=init, **options)
    policy = LossScale(scale=init, **options)
    for overflowed in outcomes:
        torch_scale(scaler, overflowed=overflowed)
        policy = policy.after(overflowed=overflowed)
        state = scaler.state_dict()
        # torch keeps the scale in float32, we in float64: equal to float32's rounding.
        assert abs(state["scale"] - policy.scale) <= 1e-5 * policy.scale
        assert state["_growth_tracker"] == policy.good_updates


def test_the_scale_stays_in_range():
    assert LossScale(scale=LARGEST_FLOAT32, growth_interval=1).after(overflowed=False).scale == (
        LARGEST_FLOAT32
    )


def test_the_scaler_stays_the_owner():
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scaling = Scaling(scaler)
    assert scaling.scale == 8.0
    scaling.record(overflowed=False)
    assert scaling.update() == 1.0
    assert scaler.state_dict()["_growth_tracker"] == 1
    scaling.record(overflowed=False)
    assert scaling.update() == 2.0
    assert scaler.get_scale() == 16.0
    scaler.load_state_dict({**scaler.state_dict(), "scale": 4.0})  # the user changes it
    scaling.read()
    assert scaling.scale == 4.0
    scaling.record(overflowed=False)
    scaling.record(overflowed=True)
    assert scaling.update() == 0.5  # one update for both
    assert scaler.get_scale() == 2.0


def test_without_a_scaler_nothing_is_scaled():
    for scaler in (None, torch.amp.GradScaler("cpu", enabled=False)):
        scaling = Scaling(scaler)
        scaling.record(overflowed=True)
        assert not scaling.enabled
        assert not scaling.pending
        assert scaling.update() == 1.0
        assert scaling.scale == 1.0
        assert scaling.state_dict() == {}
