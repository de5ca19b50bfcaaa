"""A watch that begins in the middle: gradients are there already, and nobody has told whose."""

import pytest
import torch

import instep
from instep.errors import WatchError

FILL = "F.mse_loss(model(x), x).backward()"


def job(body, *, updates=8, before=FILL, optimizer="SGD(model.parameters(), lr=1e-3)", **options):
    """Watch a loop whose gradients were filled before."""
    left = {"torch": torch, "F": torch.nn.functional, "__name__": "__main__"}
    start = "model, x = torch.nn.Linear(4, 4), torch.randn(8, 4)\n"
    start += f"optimizer = torch.optim.{optimizer}\n"
    exec(start + before, left)  # noqa: S102  # the test's own
    watched = instep.Job(live=False, **options)
    lines = "".join(f"\n    {line}" for line in body.split("\n"))
    with watched:
        exec(compile(f"for update in range({updates}):{lines}", "train.py", "exec"), left)  # noqa: S102
    assert watched.seam.faults == []
    return watched


def codes(watched):
    return [finding.code for finding in watched.findings]


NEVER = f"{FILL}\noptimizer.step()"


def test_what_is_never_cleared_is_found_all_the_same():
    (finding,) = job(NEVER, updates=40).findings
    assert (finding.code, finding.severity.word, finding.place.line) == ("INS101", "error", 2)
    assert finding.message.startswith("`optimizer` is never cleared")
    assert "at least 40 backwards" in finding.message


def test_strict_does_not_let_it_through():
    with pytest.raises(WatchError, match="missing-zero-grad"):
        job(NEVER, updates=40, strict=True)


def test_the_same_cell_again():
    before = f"for _ in range(3):\n    {FILL}\n    optimizer.step()"
    assert codes(job(NEVER, before=before)) == ["INS101"]


def test_windows_that_are_never_cleared():
    body = f"{FILL}\nif update % 2:\n    optimizer.step()"
    assert "INS101" in codes(job(body, updates=12))


def test_a_closure_that_never_clears():
    before = f"{FILL}\ndef closure():\n    loss = F.mse_loss(model(x), x)\n    loss.backward()\n"
    before += "    return loss"
    body = "optimizer.step(closure)"
    lbfgs = "LBFGS(model.parameters(), lr=1e-3, max_iter=4)"
    found = job(body, before=before, optimizer=lbfgs).judge.findings
    assert [code for code, _ in found] == ["INS101"]


@pytest.mark.parametrize(
    "body",
    [
        f"{FILL}\noptimizer.step()\noptimizer.zero_grad()",
        f"optimizer.zero_grad()\n{FILL}\noptimizer.step()",
        f"{FILL}\nif update % 4 == 2:\n    optimizer.step()\n    optimizer.zero_grad()",
        f"{FILL}\noptimizer.step()\nmodel.zero_grad(set_to_none=False)",
        f"{FILL}\noptimizer.step()\nfor p in model.parameters(): p.grad = None",
        f"{FILL}\noptimizer.step()\nfor p in model.parameters(): p.grad.zero_()",
        f"{FILL}\noptimizer.step()\nfor p in model.parameters(): p.grad.data.zero_()",
        f"{FILL}\noptimizer.step()\nfor p in model.parameters(): p.grad.mul_(0.9)",
    ],
)
def test_a_window_that_was_merely_begun_before(body):
    found = [finding for finding in job(body, updates=12).findings if finding.code == "INS101"]
    assert found == []


@pytest.mark.parametrize("updates", [1, 2])
def test_what_is_not_certain_yet(updates):
    # The first window may have been begun before, and be cleared only from then on.
    assert codes(job(NEVER, updates=updates)) == []
