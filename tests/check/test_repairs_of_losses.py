"""What real code taught about losses that are kept."""

from __future__ import annotations

import pytest

from tests.check.repairs import HEAD, MADE, codes, mended

KEPT = (
    MADE
    + """\
losses = []
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss)
"""
)


def test_a_list_of_losses_that_is_emptied_does_not_grow():
    assert codes(KEPT) == {"INS601"}
    for empty in "losses = []", "losses.clear()":
        assert codes(KEPT + f"    if i % 3 == 0:\n        {empty}\n") == set()
    assert codes(KEPT + "losses = []\n") == {"INS601"}


def test_losses_that_another_path_goes_back_through_are_kept_for_it():
    text = (
        HEAD
        + """\
def step(model, optimizer, batches, order, train):
    losses = []
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        loss.backward(retain_graph=True)
        losses.append(loss)
    if order == 1:
        optimizer.step()
        {one}
    else:
        {two}
        total = torch.stack(losses).mean()
        {three}
        optimizer.step()
"""
    )
    used = {"one": "optimizer.zero_grad()", "two": "optimizer.zero_grad()"}
    assert "INS601" not in codes(text.format(**used, three="total.backward()"))
    assert "INS601" in codes(text.format(**used, three="print(total)"))


def test_a_total_of_a_loop_that_runs_once_keeps_one_graph():
    loop = """\
{before}for epoch in range(100):
    {within}
    for step in range({times}):
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        total += loss
        optimizer.step()
    print(total)
"""

    def kept(times, before="", within="total = 0.0"):
        return codes(MADE + loop.format(times=times, before=before, within=within)) == {"INS601"}

    assert not kept(1)
    assert not kept("n", "n = 1\n")
    assert kept(2)
    assert kept(1, "total = 0.0\n", "pass")


NUMBERS = """
def train(net, optimizer, loader, every):
    kept = []
    loss = 0.0
    for i, x in enumerate(loader):
        if i % every == 0:
            optimizer.zero_grad()
            loss = net(x).mean()
            loss.backward()
            optimizer.step()
        if {test}:
            kept.append({number})
        else:
            kept.append({tensor})
"""


def test_a_branch_for_numbers_holds_no_tensor():
    for test in (
        "type(loss) == float",
        "type(loss) is float",
        "float == type(loss)",
        "type(loss) in (int, float)",
        "isinstance(loss, float)",
        "isinstance(loss, (int, float))",
    ):
        right = HEAD + NUMBERS.format(test=test, number="loss", tensor="loss.item()")
        assert codes(right) == set(), test
        wrong = HEAD + NUMBERS.format(test=test, number="loss", tensor="loss")
        assert codes(wrong) == {"INS601"}, test
    for test in (
        "type(loss) != float",
        "type(loss) is not float",
        "type(loss) not in [int, float]",
        "not isinstance(loss, float)",
        "type(loss) == torch.Tensor",
        "type(loss) is torch.Tensor",
        "isinstance(loss, torch.Tensor)",
    ):
        right = HEAD + NUMBERS.format(test=test, number="loss.item()", tensor="0.0")
        assert codes(right) == set(), test
        wrong = HEAD + NUMBERS.format(test=test, number="loss", tensor="0.0")
        assert codes(wrong) == {"INS601"}, test


def test_a_loss_that_is_cut_in_place_holds_no_graph():
    kept = MADE + "total = 0\nfor x, y in loader:\n    loss = F.mse_loss(model(x), y)\n"
    kept += "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n    {cut}\n"
    kept += "    total += loss\n"
    assert "INS601" in codes(kept.format(cut="pass"))
    assert "INS601" not in codes(kept.format(cut="loss.detach_()"))


SHOWN = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
loader = [(torch.randn(3, 2), torch.randn(3, 1)) for _ in range(10)]
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
shown = []
for epoch in range(2):
    running = 0.0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y){divided}
        loss.backward()
        running += loss.item(){whole}
        if {gate} % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    shown.append(running / len(loader))
"""


@pytest.mark.parametrize(
    ("divided", "whole", "gate", "code"),
    [
        (" / 4", " * 4", "(i + 1)", "INS202"),
        (" / 4", " * 4", "i", "INS204"),
        ("", "", "(i + 1)", "INS201"),
    ],
)
def test_a_fix_leaves_the_loss_that_is_shown_as_it_is(divided, whole, gate, code):
    text = SHOWN.format(divided=divided, whole=whole, gate=gate)
    assert code in codes(text)
    fixed = mended(text)
    assert codes(fixed) == set()
    before, after = {}, {}
    exec(text, before)  # noqa: S102  # the learning rate is 0, so that both see the same losses
    exec(fixed, after)  # noqa: S102
    assert after["shown"] == pytest.approx(before["shown"], rel=1e-6)
