"""Gradients that stay where they are, in jobs that are not the plain loop."""

import pytest

from instep.rules import Severity
from tests.watching.jobs import found, run

HEAD = """\
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
def batches():
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=4)
model = nn.Linear(8, 3)
"""


def told(source, text):
    """Run a job and return what was found, with its text where its line is the one expected."""
    job = run(HEAD + source)
    lines = (HEAD + source).splitlines()
    [finding] = [each for each in job.findings if each.code == "INS101"]
    assert lines[finding.place.line - 1].strip() == text
    return finding


GAN = """\
maker, critic = nn.Linear(4, 8), nn.Linear(8, 1)
makes, judges = (torch.optim.Adam(part.parameters()) for part in (maker, critic))
sure, good, bad = F.binary_cross_entropy_with_logits, torch.ones(4, 1), torch.zeros(4, 1)
for epoch in range(3):
    for x, _ in batches():
        fake = maker(torch.randn(4, 4))
        makes.zero_grad()
        sure(critic(fake), good).backward()
        makes.step()
        {before}
        (sure(critic(x), good) + sure(critic(fake.detach()), bad)).backward()
        judges.step()
        {after}
"""


def test_a_generator_that_leaves_gradients_in_its_critic():
    finding = told(
        GAN.format(before="", after="judges.zero_grad()"),
        "(sure(critic(x), good) + sure(critic(fake.detach()), bad)).backward()",
    )
    assert finding.severity is Severity.WARNING
    assert "the backward for `makes` has left in it" in finding.message


def test_a_critic_that_is_cleared_in_time():
    assert found(run(HEAD + GAN.format(before="judges.zero_grad()", after=""))) == []
    assert found(run(HEAD + GAN.format(before="critic.zero_grad()", after=""))) == []


def test_two_losses_that_are_both_meant():
    # The encoder has stepped before the second loss; its decoder is trained on both losses.
    source = """\
encoder, decoder = nn.Linear(8, 4), nn.Linear(4, 8)
first, second = (torch.optim.Adam(part.parameters()) for part in (encoder, decoder))
for epoch in range(3):
    for x, _ in batches():
        first.zero_grad()
        second.zero_grad()
        F.mse_loss(decoder(encoder(x)), x).backward()
        (0.1 * decoder(torch.randn(4, 4)).square().mean()).backward()
        first.step()
        second.step()
"""
    assert found(run(HEAD + source)) == []


CLOSURE = """\
optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=4{options})
for x, y in batches():
    def closure():
        {clear}
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
    optimizer.step(closure)
"""
SEARCH = ", line_search_fn='strong_wolfe'"


@pytest.mark.parametrize("options", ["", SEARCH])
def test_a_closure_that_never_clears(options):
    finding = told(CLOSURE.format(options=options, clear=""), "loss.backward()")
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith("the closure of `optimizer` does not clear")


@pytest.mark.parametrize("options", ["", SEARCH])
@pytest.mark.parametrize("clear", ["optimizer.zero_grad()", "model.zero_grad()"])
def test_a_closure_that_clears(options, clear):
    assert found(run(HEAD + CLOSURE.format(options=options, clear=clear))) == []


ANEW = """\
for epoch in range({epochs}):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    {before}
    F.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 3, (4,))).backward()
    optimizer.step()
    {after}
"""


@pytest.mark.parametrize("epochs", [4, 30])
def test_a_new_optimizer_over_old_gradients(epochs):
    finding = told(
        ANEW.format(epochs=epochs, before="", after=""),
        "F.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 3, (4,))).backward()",
    )
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    "clear",
    [
        "optimizer.zero_grad()",
        "model.zero_grad()",
        "for p in model.parameters(): p.grad = None",
        "for p in model.parameters(): p.grad is None or p.grad.data.zero_()",
    ],
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_new_optimizer_over_cleared_gradients(clear, moment):
    source = ANEW.format(**{"epochs": 30, "before": "", "after": "", moment: clear})
    assert found(run(HEAD + source)) == []


BY_HAND = """\
for epoch in range(3):
    for x, y in batches():
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                {clear}
"""


def test_updates_by_hand_that_are_never_cleared():
    finding = told(BY_HAND.format(clear=""), "F.cross_entropy(model(x), y).backward()")
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith("the weights are updated by hand")


def test_updates_by_hand_of_a_single_tensor():
    source = """\
weight = torch.randn(3, requires_grad=True)
for update in range(30):
    (torch.randn(5, 3) @ weight).square().mean().backward()
    weight.data -= 0.01 * weight.grad
"""
    told(source, "(torch.randn(5, 3) @ weight).square().mean().backward()")


@pytest.mark.parametrize(
    "clear",
    ["p.grad = None", "p.grad.zero_()", "p.grad.data.zero_()", "p.grad.mul_(0.9)"],
)
def test_updates_by_hand_that_are_cleared_or_fade(clear):
    assert found(run(HEAD + BY_HAND.format(clear=clear))) == []


def test_gradients_that_are_only_collected():
    source = """\
for x, y in batches():  # the Fisher information of a model that stays as it is
    F.cross_entropy(model(x), y).backward()
"""
    assert found(run(HEAD + source)) == []
