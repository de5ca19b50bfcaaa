import pytest
import torch

from tests.watching.jobs import found, gauges, hooks, run

LOOP = """
parts = torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 4)
model = torch.nn.Sequential(*parts).to({dtype})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for update in range(3):
    optimizer.zero_grad({clear})
    for micro in range({micro}):
        loss = model(torch.rand(8, 8, dtype={dtype})).square().mean() / {micro}
        loss.backward()
        {within}
    {before}
    optimizer.step()
"""


def job(dtype="torch.bfloat16", micro=64, clear="", within="pass", before="pass", **more):
    source = LOOP.format(dtype=dtype, micro=micro, clear=clear, within=within, before=before)
    return run(source, **more)


def test_the_error_is_that_of_the_sum():
    """Against the same sum made by hand, from gradients that are taken one by one."""
    source = """
weight = torch.nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
optimizer = torch.optim.SGD([weight], lr=0.0)
parts = torch.rand(300, 64).bfloat16()
for update in range(2):
    optimizer.zero_grad()
    for part in parts:
        loss = (weight * part).sum()
        loss.backward()
    grad = weight.grad.clone()
    optimizer.step()
"""
    left = run(source).left
    told = gauges(run(source))["accumulation-error"]
    true = left["parts"].float().sum(0)
    error = (left["grad"].float() - true).norm() / true.norm()
    assert error > 0.01
    assert told.value == pytest.approx(float(error), rel=1e-5)
    assert told.subject == "parameter 0"
    assert told.place.line == 11


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16"])
def test_coarse_types_are_measured(dtype):
    told = gauges(job(dtype))["accumulation-error"]
    assert 1e-5 < told.value < 1
    assert told.subject == "model.0.weight"


def test_others_are_not():
    assert "accumulation-error" not in gauges(job("torch.float32"))
    assert "accumulation-error" not in gauges(job(micro=1))


@pytest.mark.parametrize("clear", ["", "set_to_none=False"])
def test_gradients_may_be_cleared_either_way(clear):
    value = gauges(job(clear=clear))["accumulation-error"].value
    assert value == pytest.approx(gauges(job())["accumulation-error"].value, rel=0.5)


@pytest.mark.parametrize("before", ["model[0].weight.grad.mul_(0.001)", "model.zero_grad()"])
def test_what_comes_after_the_last_backward_does_not_count(before):
    assert gauges(job(before=before))["accumulation-error"].value < 0.1


def test_a_sum_that_somebody_else_changes_is_not_measured():
    assert "accumulation-error" not in gauges(job(within="model[0].weight.grad.mul_(0.5)"))


PROBED = """
weight = torch.nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
optimizer = torch.optim.SGD([weight], lr=0.0)
for update in range(3):
    optimizer.zero_grad()
    for micro in range(4):
        loss = (weight * torch.rand(64).bfloat16()).sum()
        {before}
        loss.backward()
        {after}
    optimizer.step()
"""
"""Jobs whose sums are hardly off: of four gradients."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.autograd.grad(loss, weight, retain_graph=True)", "pass"),
        ("hook = weight.register_hook(lambda grad: grad * 0.1)", "hook.remove()"),
        ("if not (update or micro): weight.register_hook(lambda grad: grad * 0.1)", "pass"),
    ],
    ids=["grad", "hook", "hook that stays"],
)
def test_what_is_added_counts_and_nothing_else(before, after):
    watched = run(PROBED.format(before=before, after=after))
    assert 0 < gauges(watched)["accumulation-error"].value < 0.01
    assert found(watched) == []
    left = hooks(torch.nn.ParameterList([watched.left["weight"]]))
    assert left == ("not (update" in before)


def test_a_hook_behind_the_sum_ends_the_measurement():
    edit = "def edit(weight): weight.grad.mul_(0.1)\n"
    hook = "if not (update or micro): weight.register_post_accumulate_grad_hook(edit)"
    watched = run(edit + PROBED.format(before=hook, after="pass"))
    assert "accumulation-error" not in gauges(watched)


def test_a_backward_that_fails_is_not_counted():
    failing = """
def fail(grad): raise ValueError
other = torch.zeros(1, requires_grad=True)
other.register_hook(fail)
def attempt():
    try:
        ((weight * 3).sum() + other.sum()).backward()
    except ValueError:
        pass
"""
    watched = run(failing + PROBED.format(before="attempt()", after="pass"))
    assert found(watched) == []
    assert hooks(torch.nn.ParameterList([watched.left["weight"]])) == 0


def test_few_additions_are_not_told():
    assert ("INS309", 12) not in found(job(micro=4))


def test_bits_and_hooks():
    models, states = [], []
    for watched in (True, False):
        models.append(job(watched=watched).left["model"])
        states.append(torch.get_rng_state())
    for mine, theirs in zip(*(model.parameters() for model in models), strict=True):
        assert mine.equal(theirs)
        assert mine.grad.equal(theirs.grad)
    assert states[0].equal(states[1])
    assert hooks(models[0]) == 0
