"""Clears of a part of what an optimizer holds: whether the rest stays, or is cleared otherwise."""

import pytest

from tests.watching.jobs import found, gauges, run

LOOP = """
encoder, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
groups = [{{"params": list(encoder.parameters())}}, {{"params": list(head.parameters())}}]
optimizer = torch.optim.{kind}(groups, lr=0.01)
rest = list(head.parameters())
for update in range({updates}):
    {first}
    for micro in range({size}):
        loss = head(encoder(torch.randn(4, 8)).relu()).square().mean() / {size}
        loss.backward()
        {inside}
    {before}
    optimizer.step()
    {after}
"""


def job(first="encoder.zero_grad()", size=1, updates=20, kind="SGD", watched=True, **lines):
    at = {"inside": "pass", "before": "pass", "after": "pass"} | lines
    source = LOOP.format(first=first, size=size, updates=updates, kind=kind, **at)
    return run(source, watched=watched)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"kind": "AdamW"},
        {"first": "pass", "after": "encoder.zero_grad()"},
        {"first": "encoder.zero_grad(set_to_none=False)"},
        {"size": 3},
        {"before": "torch.nn.utils.clip_grad_norm_([*encoder.parameters(), *rest], 1.0)"},
        {"before": "torch.nn.utils.clip_grad_value_([*encoder.parameters(), *rest], 1.0)"},
    ],
)
def test_what_is_never_cleared(more):
    watched = job(**more)
    told = gauges(watched)["gradients-uncleared"]
    assert (told.value, told.subject) == (2, "head.weight, head.bias")
    (finding,) = (each for each in watched.findings if each.code == "INS101")
    assert finding.place.line == 10
    assert finding.severity.word == "error"
    assert "(head.weight, head.bias) are left" in finding.message


def test_it_is_not_said_too_early():
    assert found(job(updates=8)) == []


BY_HAND = (
    "head.zero_grad()",
    "head.zero_grad(set_to_none=False)",
    "[setattr(p, 'grad', None) for p in rest]",
    "[p.grad.zero_() for p in rest if p.grad is not None]",
    "[p.grad.data.zero_() for p in rest if p.grad is not None]",
    "torch._foreach_zero_([p.grad for p in rest]) if update else None",
)


@pytest.mark.parametrize("clear", BY_HAND)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("where", ["first", "after"])
def test_what_is_cleared_otherwise(clear, size, where):
    first = "encoder.zero_grad()"
    lines = {"first": f"{first}; {clear}"} if where == "first" else {"first": first, where: clear}
    watched = job(size=size, **lines)
    assert "gradients-uncleared" not in gauges(watched)
    assert [code for code, _ in found(watched) if code != "INS602"] == []


@pytest.mark.parametrize(
    "more",
    [
        # Put there by hand.
        {"before": "[setattr(p, 'grad', torch.ones_like(p)) for p in rest]"},
        {"before": "[p.grad.copy_(torch.ones_like(p)) for p in rest]"},
        # A look at a gradient before the one that counts.
        {"size": 2, "inside": "[p.grad.zero_() for p in rest] if micro == 0 else None"},
        # A group that is updated, and cleared, at every fourth update only.
        {
            "before": "groups[1]['lr'] = 0.01 if update % 4 == 3 else 0",
            "after": "head.zero_grad() if update % 4 == 3 else None",
        },
        # Cleared at every few updates: whatever that is meant to be, it is not "never".
        {"after": "head.zero_grad() if update % 4 == 3 else None"},
    ],
)
def test_what_somebody_looks_after(more):
    watched = job(**more)
    assert "gradients-uncleared" not in gauges(watched)
    assert [code for code, _ in found(watched) if code == "INS101"] == []


OWN = """
class Own(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for p in self.param_groups[1]["params"]:
            p.grad = None
torch.optim.Own = Own
"""


def test_a_step_that_clears_the_rest():
    source = LOOP.format(
        kind="Own", updates=20, size=1, first="encoder.zero_grad()", inside="pass",
        before="pass", after="pass",
    )  # fmt: skip
    watched = run(OWN + source + "\ndel torch.optim.Own")
    assert "gradients-uncleared" not in gauges(watched)


def test_it_is_over_when_it_was_told():
    watched = job()
    assert not watched.recorder.uncleared.follows


def test_bits():
    for more in ({}, {"after": "head.zero_grad()"}):
        one, other = (job(watched=on, **more).left for on in (True, False))
        for name in ("encoder", "head"):
            for mine, theirs in zip(one[name].parameters(), other[name].parameters(), strict=True):
                assert mine.equal(theirs)


SCALED = """
encoder, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for update in range(20):
    encoder.zero_grad()
    loss = head(encoder(torch.randn(4, 8)).relu()).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    {after}
"""


def test_with_a_scaler():
    # What is left was unscaled: it is added to gradients that are not.
    assert ("INS101", 8) in found(run(SCALED.format(after="pass")))
    assert found(run(SCALED.format(after="head.zero_grad()"))) == []


PARTS = """
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
first = torch.optim.Adam(model[0].parameters())
second = torch.optim.Adam(model[1].parameters())
for update in range(20):
    first.zero_grad()
    {clear}
    torch.nn.functional.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 1)).backward()
    first.step()
    second.step()
"""


@pytest.mark.parametrize(("clear", "expected"), [("pass", ["INS101"]), ("second.zero_grad()", [])])
def test_one_of_two_optimizers_of_one_model_is_never_cleared(clear, expected):
    assert [code for code, _ in found(run(PARTS.format(clear=clear)))] == expected
