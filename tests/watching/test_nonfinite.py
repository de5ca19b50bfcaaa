"""Updates with gradients that are not finite, in jobs without time to look at each of them."""

from __future__ import annotations

import pytest
import torch

import instep
from instep.watching import samples
from tests.watching.jobs import found, gauges, run

LOOP = """
nan, inf = float("nan"), float("inf")
{before}
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
optimizer = {optimizer}(model.parameters(), lr=0.01)
{after}
for update in range({updates}):
    x = torch.randn(4, 8)
    if {is_bad}:
        x[0, 0] = nan
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    {within}
"""
LINE = 14
CLEANS = """
def clean(optimizer, args, kwargs):
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
optimizer.register_step_pre_hook(clean)
"""
SKIPS = """
class Safe(torch.optim.Adam):
    def step(self, closure=None):
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        if all(grad.isfinite().all() for grad in grads):
            return super().step(closure)
"""


@pytest.fixture
def hurried(monkeypatch):
    """Have a job without any time to measure, but at its beginning."""
    monkeypatch.setattr(samples, "SHARE", 0.0)


def job(
    is_bad, updates=60, before="", after="", within="pass", optimizer="torch.optim.SGD", **more
):
    parts = {"before": before, "after": after, "within": within, "optimizer": optimizer}
    return run(LOOP.format(is_bad=is_bad, updates=updates, **parts), **more)


@pytest.mark.parametrize("optimizer", ["torch.optim.SGD", "torch.optim.Adam"])
def test_updates_are_counted_from_the_first_one_on(hurried, optimizer):
    watched = job("update == 33", 50, optimizer=optimizer)
    assert found(watched) == [("INS505", LINE)]
    assert "has made 17 updates with gradients" in watched.findings[0].message


@pytest.mark.parametrize("bad", [range(7, 60, 10), range(45, 60)])
def test_gradients_that_a_hook_cleans_are_none(hurried, bad):
    assert found(job(f"update in {bad!r}", after=CLEANS)) == []


def test_gradients_that_are_not_stepped_on_are_none(hurried):
    assert found(job("update % 10 == 5", before=SKIPS, optimizer="Safe")) == []


def test_what_is_not_counted_is_not_denied(hurried):
    watched = job("update == 100", 200)
    assert found(watched) == [("INS505", LINE)]
    assert "has made at least 41 updates" in watched.findings[0].message


def test_a_loss_that_is_not_finite_is_looked_into_in_a_long_job_too(hurried):
    watched = job("update == 600", 700)
    assert found(watched) == [("INS505", LINE)]
    assert "has made at least " in watched.findings[0].message


def test_weights_are_looked_at_when_the_job_ends(hurried):
    watched = job("update == 650", 660)
    assert found(watched) == [("INS505", LINE)]
    assert gauges(watched)["nonfinite-weights"].value == 4
    assert "infinite or NaN when the job ends" in watched.findings[0].message


def test_of_what_is_infinite_on_purpose_nothing_is_said(hurried):
    forbid = "with torch.no_grad(): model[2].bias[0] = -inf"
    hooks = "model[2].bias.register_hook(lambda grad: torch.zeros_like(grad))\n"
    hooks += "for p in model.parameters(): p.register_hook(torch.nan_to_num)"
    watched = run(
        LOOP.format(
            is_bad="False",
            updates=50,
            before="",
            after=f"{forbid}\n{hooks}\n{CLEANS}",
            within="pass",
            optimizer="torch.optim.SGD",
        ).replace("model(x).square()", "model(x)[:, 1:].square()")
    )
    assert found(watched) == []


def test_gradients_whose_norm_is_too_large_for_its_type_are_finite():
    source = """
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.0)
for update in range(20):
    optimizer.zero_grad()
    (weight * 1e30).sum().backward()
    optimizer.step()
"""
    assert found(run(source)) == []


def test_after_an_error_only_the_host_is_asked(hurried):
    class Fails(Exception):
        pass

    source = LOOP.format(
        is_bad="update == 50",
        updates=60,
        before="",
        after="kept.append(optimizer)",
        within="if update == 51: raise Fails",
        optimizer="torch.optim.SGD",
    )
    job = instep.watch(live=False)
    with pytest.raises(Fails), job:
        names = {"torch": torch, "kept": [], "Fails": Fails}
        exec(compile(source, "train.py", "exec"), names)  # noqa: S102  # it is the test's own
    assert found(job) == [("INS505", LINE)]
