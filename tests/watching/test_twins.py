"""Optimizers that hold another model than the one that is trained."""

import pytest

from tests.watching.jobs import found, gauges, run

LOOP = """
import copy
def made():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))

model = made()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{then}
for update in range(24):
    {clear}.zero_grad()
    loss = {used}(torch.randn(8, 8)).square().mean()
    loss.backward()
    {before}
    optimizer.step()
    {after}
"""


def job(then="pass", used="model", clear="optimizer", before="pass", after="pass", **more):
    source = LOOP.format(then=then, used=used, clear=clear, before=before, after=after)
    return run(source, **more)


@pytest.mark.parametrize(
    ("then", "used"),
    [
        ("model = copy.deepcopy(model)", "model"),
        ("model = made()", "model"),
        ("best = copy.deepcopy(model)", "best"),
    ],
)
@pytest.mark.parametrize("clear", ["optimizer", "MODEL"])
def test_a_model_that_was_copied_or_made_again(then, used, clear):
    watched = job(then, used, used if clear == "MODEL" else clear)
    assert found(watched) == [("INS502", 12)]
    (finding,) = watched.findings
    assert finding.severity.word == "warning"
    assert f"4 parameters of `{used}` are in no optimizer" in finding.message
    assert "`optimizer` holds as many of the same shapes that no loss reaches" in finding.message


GIVEN = "[setattr(p, 'grad', q.grad) for p, q in zip(model.parameters(), own.parameters())]"
PULLED = "own.load_state_dict(model.state_dict())"
BY_HAND = "[q.data.sub_(0.1 * q.grad) for q in own.parameters()]"


@pytest.mark.parametrize(
    "more",
    [
        {"then": "best = copy.deepcopy(model)"},
        {"then": "own = copy.deepcopy(model)", "used": "own", "before": GIVEN, "after": PULLED},
        {"then": "own = copy.deepcopy(model)", "used": "own", "after": BY_HAND},
        {"then": "own = copy.deepcopy(model)", "used": "(lambda x: own(x) + model(x))"},
    ],
)
def test_copies_that_are_meant(more):
    watched = job(**more)
    assert "twin-gradients" not in gauges(watched) or "own" in more["used"]
    assert [finding for finding in watched.findings if "same shapes" in finding.message] == []


def test_a_copy_beside_a_model_that_comes_to_be_trained_later():
    watched = job("own = copy.deepcopy(model)", "(own if update < 14 else model)")
    assert [finding for finding in watched.findings if finding.severity.word != "info"] == []


def test_bits():
    one, other = (
        job("model = copy.deepcopy(model)", watched=watched).left["model"]
        for watched in (True, False)
    )
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert mine.equal(theirs)
        assert mine.grad.equal(theirs.grad)
