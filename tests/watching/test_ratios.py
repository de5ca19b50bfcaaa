import pytest

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
