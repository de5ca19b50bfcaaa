import pytest

from tests.check.execute.run import SETUP, base, events, executed, facts, once, run, value


def test_what_is_known_decides():
    assert value("v = 1\nif v > 2:\n    v = 5\nelse:\n    v = 6") == 6


def test_a_guard_is_not_taken():
    assert value("v = 1\nif flag:\n    raise ValueError\nv = 2") == 2
    assert value("v = 1\nif flag:\n    sys.exit()\nv = 2") == 2


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("try:\n    v = 1\nexcept E:\n    v = 2", 1),
        ("try:\n    raise E\nexcept E:\n    v = 2", 2),
        ("try:\n    v = 1\nexcept E:\n    v = 2\nelse:\n    v = 3", 3),
        ("try:\n    v = 1\nfinally:\n    v = 4", 4),
        ("match x:\n    case 1:\n        raise E\n    case 2:\n        v = 3", 3),
    ],
)
def test_tries_and_matches(source, expected):
    assert value(source) == expected


def test_return_leaves_a_function_with_its_value():
    assert value("def f():\n    for i in (1, 2):\n        return i\n    return 9\nv = f()") == 1
    assert value("def f():\n    pass\nv = f()") is None


def test_break_and_continue():
    source = """
v = 0
for i in (1, 2, 3, 4):
    if i == 2:
        continue
    if i == 4:
        break
    v = i
"""
    assert value(source) == 3


def test_a_branch_that_was_decided_is_assumed():
    source = SETUP + "if args.clip:\n    model(x).sum().backward()\noptimizer.step()"
    assert ("assumed", "args.clip", True) in events(source)
    (path, other) = run(source).paths
    (assumption,) = path.assumptions
    assert (assumption.text, assumption.first, assumption.last) == ("args.clip", 6, 6)
    assert not other.assumptions  # there is no else that could hold anything


def test_a_guard_before_the_rest_is_a_gate_as_well():
    source = """
for i, (x, y) in enumerate(loader):
    model(x).sum().backward()
    if (i + 1) % 4 != 0:
        continue
    optimizer.step()
"""
    assert once(SETUP + source, "step") == [("step", "optimizer", 4)]


def test_a_limit_on_the_batches_makes_the_end_unsure():
    source = """
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        if i > most:
            break
        model(x).sum().backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
"""
    assert once(SETUP + source, "step") == [("step", "optimizer", None)]


def test_a_gate_is_over_after_its_branch():
    source = """
for i, (x, y) in enumerate(loader):
    if i % 4 == 0:
        optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
    assert once(SETUP + source, "step") == [("step", "optimizer", None)]


def test_conditions_in_called_functions_are_their_own():
    source = "def f(x):\n    if x:\n        return 1\n    return 2\nif f(1) == 1:\n    v = 'yes'"
    assert executed(source)[1].names["v"] == "yes"


def test_each_branch_once_in_a_trace():
    source = (
        SETUP
        + "for x in loader:\n    if flag:\n        model(x).sum().backward()\n    optimizer.step()"
    )
    assert sum(event.kind == "assumed" for event in base(source)) == 1


WAITS = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
for epoch in range(args.first, args.epochs):
    if {}:
        schedule.step()
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("test", "skippable"),
    [
        ("epoch >= args.start", True),
        ("args.start < epoch", True),
        ("epoch > args.start and args.decays", True),
        ("epoch < args.end", False),
        ("args.decays", False),
        ("args.kind == 1", False),
    ],
)
def test_a_schedule_that_waits_for_an_epoch_had_updates_before(test, skippable):
    assert facts(WAITS.format(test), "schedule").get("skippable", False) is skippable


def test_a_schedule_that_waits_with_its_updates_had_none():
    source = WAITS.format("epoch >= args.start").replace("    for x", "        for x")
    source = source.replace("        optimizer", "            optimizer")
    source = source.replace("        model", "            model")
    assert "skippable" not in facts(source, "schedule")


def test_on_no_path_are_all_parameters_frozen():
    source = """
for x in loader:
    for weight in model.parameters():
        if weight.requires_grad:
            weight.grad = None
    model(x).sum().backward()
    optimizer.step()
"""
    assert len(run(SETUP + source).paths) == 1
    assert len(run(SETUP + source.replace("weight.requires_grad", "args.clears")).paths) == 2


@pytest.mark.parametrize("test", ["stage > 1", "stage != 1", "stage >= 2"])
def test_what_every_update_goes_through_is_missed_where_there_is_one_piece(test):
    then = "scaler.unscale_(optimizer)"
    source = f"""
for x in loader:
    optimizer.zero_grad()
    scaler.scale(model(x).sum()).backward()
    if {test}:
        {then}
    scaler.step(optimizer)
    scaler.update()
"""
    setup = SETUP + "scaler = torch.amp.GradScaler()\n"
    assert len(run(setup + source).paths) == 2
    assert len(run(setup + source.replace(then, "model.bias.grad.div_(stage)")).paths) == 1


def test_a_branch_for_several_pieces_that_has_another_side_is_taken_both_ways():
    text = (
        SETUP
        + """
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    if settings.pieces > 1:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {}
    optimizer.step()
"""
    )
    other = "else:\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)"
    assert len(run(text.format("")).paths) == 1
    assert len(run(text.format(other)).paths) == 2
