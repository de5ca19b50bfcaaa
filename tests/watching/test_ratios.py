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


def test_a_rate_that_falls_is_compared_with_the_highest():
    assert usual_ratio([(1e-8, 1e-3)] * 32, 1e-2) == pytest.approx(1e-7)
    assert usual_ratio([(1e-8, None)] * 32, None) is None
    assert usual_ratio([(0.0, 0.0)] * 32, 1e-2) is None
    assert usual_ratio([(0.3, None)] * 32, None) == 0.3
