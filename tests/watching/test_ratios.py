import pytest
import torch

from instep.watching.ratios import usual_ratio
from tests.watching.jobs import found, gauges, run

LOOP = """
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr={rate})
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: {schedule})
for update in range(40):
    optimizer.zero_grad()
    x = torch.randn(8, 16)
    loss = (model(x) - {target}).square().mean()
    loss.backward()
    optimizer.step()
    schedule.step()
"""


def job(rate, schedule="1.0", target="x[:, :4]"):
    return run(LOOP.format(rate=rate, schedule=schedule, target=target))


def test_the_ratio_is_that_of_the_weight():
    told = gauges(job(0.01))["update-ratio"]
    assert 1e-4 < told.value < 0.1
    assert told.subject == "model.weight"
    assert told.place.line == 10


@pytest.mark.parametrize(("rate", "target"), [(1e-10, "x[:, :4]"), (0.6, "30 * torch.randn(8, 4)")])
def test_out_of_proportion(rate, target):
    assert found(job(rate, target=target)) == [("INS506", 10)]


@pytest.mark.parametrize("schedule", ["(n + 1) * 1e-8", "1.0 if n < 5 else 1e-9"])
def test_a_schedule_explains_small_updates(schedule):
    assert found(job(0.01, schedule)) == []


def test_a_run_that_has_come_to_its_end_is_not_told():
    told = run("""
model = torch.nn.Linear(4, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.49)
for update in range(60):
    optimizer.zero_grad()
    (model.weight - 1).square().sum().backward()
    optimizer.step()
""")
    ratios = [ratio for _, _, ratio in told.series.lines["update_ratio/optimizer"]]
    assert ratios[0] > 0.1
    assert sum(ratio < 1e-6 for ratio in ratios) >= 32
    assert found(told) == []


@pytest.mark.parametrize(("slow", "fast"), [(1e-9, 0.1), (1e-9, 1e-9)])
def test_a_group_that_is_slower_on_purpose(slow, fast):
    told = run(f"""
body, head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
groups = [{{"params": body.parameters(), "lr": {slow}}}, {{"params": head.parameters()}}]
optimizer = torch.optim.SGD(groups, lr={fast})
for update in range(40):
    optimizer.zero_grad()
    head(body(torch.randn(8, 16))).square().mean().backward()
    optimizer.step()
""")
    assert gauges(told)["update-ratio"].subject == (
        "body.weight" if slow == fast else "head.weight"
    )
    assert found(told) == ([("INS506", 8)] if slow == fast else [])


def test_a_rate_that_falls_is_compared_with_the_highest():
    assert usual_ratio([(1e-8, 1e-3)] * 32, 1e-2) == pytest.approx(1e-7)
    assert usual_ratio([(1e-8, None)] * 32, None) is None
    assert usual_ratio([(0.0, 0.0)] * 32, 1e-2) is None
    assert usual_ratio([(0.3, None)] * 32, None) == 0.3


def test_lbfgs_has_moved_all_it_can_in_its_first_step():
    source = """
x = torch.randn(64, 4)
y = x @ torch.randn(4, 1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(model.parameters())
def closure():
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss
for update in range(50):
    optimizer.step(closure)
"""
    assert found(run(source)) == []


EXPLODES = """
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.{kind}(model.parameters(), lr={rate})
goal = torch.randn(16, 4)
for update in range(60):
    optimizer.zero_grad()
    x = torch.randn(8, 16)
    loss = F.mse_loss(model(x), x @ goal)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "rate"), [("Adam", 10), ("Adam", 100), ("RMSprop", 10), ("NAdam", 100)]
)
def test_weights_that_explode_at_once_are_large_ones_ever_after(kind, rate):
    told = run(EXPLODES.format(kind=kind, rate=rate))
    assert found(told) == [("INS506", 10)]
    assert "times the size it began with (median), and the loss is" in told.findings[0].message


@pytest.mark.parametrize("rate", [1e-3, 1e-2, 0.1])
def test_usual_rates_of_adam(rate):
    assert found(run(EXPLODES.format(kind="Adam", rate=rate))) == []


def test_weights_that_begin_next_to_nothing_may_grow():
    """As a table of features does that is drawn within a ten-thousandth."""
    told = run("""
table = torch.nn.Embedding(64, 8)
torch.nn.init.uniform_(table.weight, -1e-4, 1e-4)
optimizer = torch.optim.Adam(table.parameters(), lr=1e-2)
goal = torch.randn(64, 8)
for update in range(60):
    rows = torch.randint(0, 64, (256,))
    optimizer.zero_grad()
    F.mse_loss(table(rows), goal[rows]).backward()
    optimizer.step()
""")
    assert found(told) == []


def test_a_position_that_has_far_to_go():
    told = run("""
position = torch.nn.Parameter(torch.randn(4, 2))
optimizer = torch.optim.Adam([position], lr=10.0)
for update in range(60):
    optimizer.zero_grad()
    (position - 900).square().mean().backward()
    optimizer.step()
""")
    assert found(told) == []


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("loss", ["0 * model(x).mean()", "F.relu(model(x).abs().mean() - 100)"])
def test_a_loss_of_nothing_moves_nothing(kind, loss):
    told = run(f"""
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.{kind}(model.parameters(), lr=0.01)
for update in range(40):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    ({loss}).backward()
    optimizer.step()
""")
    assert found(told) == []


def test_a_model_that_was_loaded_and_has_learnt_all_there_is():
    told = run("""
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with torch.no_grad():
    x = torch.randn(8, 16)
    y = model(x) + 1e-6
for update in range(40):
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
""")
    assert found(told) == []


@pytest.mark.parametrize(("slow", "fast"), [(1e-9, 0.01), (1e-9, 1e-9)])
def test_a_part_that_is_slower_on_purpose_with_an_optimizer_of_its_own(slow, fast):
    told = run(f"""
body, head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
first = torch.optim.Adam(body.parameters(), lr={slow})
second = torch.optim.Adam(head.parameters(), lr={fast})
for update in range(40):
    first.zero_grad()
    second.zero_grad()
    x = torch.randn(8, 16)
    F.mse_loss(head(body(x)), x[:, :4]).backward()
    first.step()
    second.step()
""")
    assert found(told) == ([("INS506", 10), ("INS506", 11)] if slow == fast else [])


def test_halves_beside_doubles_are_measured():
    told = run("""
narrow, wide = torch.nn.Linear(4, 4).bfloat16(), torch.nn.Linear(4, 4).double()
optimizer = torch.optim.SGD([*narrow.parameters(), *wide.parameters()], lr=0.1)
for update in range(3):
    optimizer.zero_grad()
    wide(narrow(torch.ones(2, 4).bfloat16()).double()).square().mean().backward()
    optimizer.step()
""")
    (line,) = [line for name, line in told.series.lines.items() if name.startswith("grad_norm/")]
    grads = [p.grad.double() for p in told.left["optimizer"].param_groups[0]["params"]]
    norm = torch.stack([grad.norm() for grad in grads]).norm().item()
    assert line.last[2] == pytest.approx(norm, rel=1e-2)


def test_weights_that_cannot_hold_their_change():
    told = run("""
model = torch.nn.Linear(16, 4).bfloat16()
torch.nn.init.ones_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for update in range(40):
    optimizer.zero_grad()
    x = torch.randn(8, 16).bfloat16()
    F.mse_loss(model(x), x[:, :4]).backward()
    optimizer.step()
""")
    assert found(told) == [("INS506", 9)]
