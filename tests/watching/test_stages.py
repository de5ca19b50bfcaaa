"""Models that no optimizer holds at the moment: trained before, trained later, or fixed."""

import pytest

from instep.watching import running
from tests.watching.jobs import found, run

MODELS = """\
from torch import nn
e, h = nn.Linear(4, 4), nn.Linear(4, 1)
"""
TURN = """\
    {clear}
    h(e(torch.randn(4, 4))).square().mean().backward()
    o.step()
"""
BOTH = "e.zero_grad(); h.zero_grad()"


def stage(held, *, clear=BOTH, updates=12):
    return f"o = torch.optim.Adam({held})\nfor i in range({updates}):\n{TURN.format(clear=clear)}"


E, H = "e.parameters()", "h.parameters()"


@pytest.mark.parametrize("order", [(E, H), (H, E), (H, E, "[*e.parameters(), *h.parameters()]")])
@pytest.mark.parametrize("clear", [BOTH, "o.zero_grad()"])
def test_a_new_optimizer_for_each_stage(order, clear):
    source = MODELS + "".join(stage(held, clear=clear) for held in order)
    assert found(run(source)) == []


def test_parts_of_one_model_in_stages():
    source = MODELS + "model = nn.Sequential(e, h)\n"
    source += "".join(stage(held, clear="model.zero_grad()") for held in (H, E))
    assert found(run(source)) == []


GAN = """\
from torch import nn
maker, critic = nn.Linear(4, 8), nn.Linear(8, 1)
makes = torch.optim.Adam(maker.parameters())
for i in range({warm}):
    makes.zero_grad()
    F.softplus(-critic(maker(torch.randn(4, 4)))).mean().backward()
    makes.step()
judges = torch.optim.Adam(critic.parameters())
for i in range(8):
    makes.zero_grad()
    F.softplus(-critic(maker(torch.randn(4, 4)))).mean().backward()
    makes.step()
    judges.zero_grad()
    fake = critic(maker(torch.randn(4, 4)).detach())
    (F.softplus(fake) + F.softplus(-critic(torch.randn(4, 8)))).mean().backward()
    judges.step()
"""


@pytest.mark.parametrize("warm", [5, 30])
def test_a_critic_that_is_trained_after_a_warm_up(warm):
    assert found(run(GAN.format(warm=warm))) == []


def test_what_is_said_before_an_optimizer_comes_is_a_note():
    source = MODELS + "said = []\n" + stage(H, clear="o.zero_grad()", updates=9)
    source += "said += newest().findings\n" + stage(E)
    job = run(source, newest=running.newest)
    assert {finding.severity.word for finding in job.left["said"]} <= {"info"}
    assert found(job) == []


def only(source):
    (finding,) = run(source).findings
    assert finding.code == "INS502"
    return finding


def test_a_model_that_nobody_ever_holds():
    finding = only(MODELS + stage(H, clear="o.zero_grad()"))
    assert finding.severity.word == "warning"
    assert "of gradients grow and are never used" in finding.message


def test_an_optimizer_that_is_replaced_before_it_was_used():
    source = MODELS + f"o = torch.optim.Adam({E})\n" + stage(H, clear="o.zero_grad()")
    assert only(source).severity.word == "warning"


def test_a_model_that_somebody_clears_at_every_turn():
    finding = only(MODELS + stage(H))
    assert finding.severity.word == "info"
    assert "`requires_grad_(False)`" in finding.message


def test_two_models_that_grow_for_themselves():
    source = MODELS + "g = nn.Linear(4, 4)\n" + stage(H, clear="o.zero_grad()")
    source = source.replace("h(e(torch.randn(4, 4)))", "h(g(e(torch.randn(4, 4))))")
    assert only(source).severity.word == "warning"


FIXED = """\
from torch import nn
judge, model = nn.Sequential(nn.Linear(8, 2), nn.Dropout(0.1)), nn.Linear(4, 8)
{mode}
optimizer = torch.optim.Adam(model.parameters())
for i in range(12):
    optimizer.zero_grad()
    F.mse_loss(judge(model(torch.randn(4, 4))), torch.zeros(4, 2)).backward()
    optimizer.step()
"""


def test_a_fixed_network_in_eval_mode_wastes_only_work():
    finding = only(FIXED.format(mode="judge.eval()"))
    assert finding.severity.word == "info"
    assert "in eval mode" in finding.message
    assert "`requires_grad_(False)`" in finding.message


@pytest.mark.parametrize("mode", ["", "judge.training = False", "judge[0].eval()"])
def test_a_network_that_is_not_all_in_eval_mode(mode):
    assert only(FIXED.format(mode=mode)).severity.word == "warning"


def test_a_frozen_network():
    assert found(run(FIXED.format(mode="judge.requires_grad_(False)"))) == []
