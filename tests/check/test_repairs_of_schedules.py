"""What real code taught about schedules."""

from __future__ import annotations

from tests.check.repairs import HEAD, MADE, codes, mended


def test_a_loop_that_draws_by_hand_has_batches_and_no_pieces():
    text = (
        MADE
        + """\
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * {length})
for epoch in range(epochs):
    it = iter(loader)
    for i in range(len(loader)):
        x, y = next(it)
        (F.mse_loss(model(x), y) / 4).backward()
        if (i + 1) % accum == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()
    with torch.no_grad():
        it = iter(others)
        for i in range(len(others)):
            x, y = next(it)
            print(model(x))
"""
    )
    assert "INS402" not in codes(text.format(length="len(loader)"))
    assert "INS402" in codes(text.format(length="(len(loader) // accum)"))


def test_one_more_update_may_be_more_than_a_schedule_allows():
    text = (
        MADE
        + """\
schedule = {}
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        (F.mse_loss(model(x), y) / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
"""
    )
    cycle = "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=2 * len(loader) // 4)"
    gentle = "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)"
    assert mended(text.format(cycle)) == text.format(cycle)
    assert mended(text.format(gentle)) != text.format(gentle)


def test_a_warm_up_from_zero_may_be_stepped_first():
    text = (
        MADE
        + """\
def warm(step):
    if step < 100:
        return step / 100
    return 1.0

def fade(step):
    return 0.9 ** step

schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, {})
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    schedule.step()
    optimizer.step()
"""
    )
    for zero in ("warm", "lambda s: min(1.0, s / n)", "lambda s: s / 5 if s < 5 else 1.0"):
        assert codes(text.format(zero)) == set()
    for other in ("fade", "lambda s: min(1.0, (s + 1) / n)", "lambda s: 1 - s / n"):
        assert codes(text.format(other)) == {"INS401"}


RESUMED = (
    HEAD
    + """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 7])

def load(model, optimizer, scheduler, path):
    kept = torch.load(path)
    optimizer.load_state_dict(kept["optimizer"])
    {loaded}
    return kept["epoch"], model, optimizer, scheduler

start, model, optimizer, scheduler = load(model, optimizer, scheduler, "best.pth")
for epoch in range(start + 1, 12):
    scheduler.step()
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
)


def test_a_schedule_that_goes_on_skips_no_first_value():
    assert codes(RESUMED.format(loaded='scheduler.load_state_dict(kept["scheduler"])')) == set()
    assert codes(RESUMED.format(loaded="pass")) == {"INS401"}
