import pytest

from instep.trace import Backward, Drawn, Forward, LossKept, Mode
from tests.check.execute.run import SETUP, base, events, once

STEP = "\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()"


def test_a_loop_around_a_loader_draws_nothing():
    source = SETUP + "for epoch in range(3):\n  for x in loader:" + STEP
    assert {event[1] for event in events(source, "drawn")} == {"loader"}


def test_a_range_that_steps_draws():
    source = SETUP + "for step in range(100):" + STEP
    assert {event[1:] for event in events(source, "drawn")} == {("step", i, None) for i in range(3)}


def test_next_in_a_loop_of_steps_is_what_is_drawn():
    source = (
        SETUP
        + "batches = iter(train_loader)\nfor step in range(100):\n    x = next(batches)"
        + STEP
    )
    assert {event[1] for event in events(source, "drawn")} != {"step"}


def test_parts_of_a_loss_are_no_pieces():
    source = (
        SETUP
        + """
for x in loader:
    outs = model(x)
    for out in outs:
        out.sum().backward()
    optimizer.step()
"""
    )
    assert {event[1] for event in events(source, "drawn")} == {"loader"}


def test_pieces_without_a_loader_are_of_the_loop():
    source = (
        SETUP
        + """
for step in range(10):
    for k in range(n):
        model(get()).sum().backward()
    optimizer.step()
"""
    )
    assert ("drawn", "k", 0, "loop") in events(source, "drawn")


def test_a_kept_loss_says_where():
    source = (
        SETUP
        + """
log = []
for x in loader:
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    log.append(loss)
"""
    )
    assert once(source, "loss_kept") == [("loss_kept", "log")]


def test_a_loss_that_goes_backward_in_the_end_is_meant_to_be_kept():
    source = (
        SETUP
        + """
total = 0
for x in loader:
    total = total + model(x).sum()
total.backward()
optimizer.step()
"""
    )
    assert once(source, "loss_kept") == []


def test_a_loss_that_went_backward_by_itself_and_in_a_sum():
    source = """
total = 0
for x in loader:
    loss = model(x).sum()
    loss.backward(retain_graph=True)
    total = total + loss
total.backward()
optimizer.step()
"""
    assert once(SETUP + source, "loss_kept") == []
    assert once(SETUP + source.replace("total.backward()", ""), "loss_kept") != []


PARTS = (
    SETUP
    + """
total = one_total = two_total = 0
for x in loader:
    one = model(x).sum()
    two = model(x).mean()
    loss = one + two
    loss.backward()
    optimizer.step()
    total += loss
    one_total += one
    two_total += two
"""
)


def test_every_total_of_a_loop_is_kept():
    assert once(PARTS, "loss_kept") == [
        ("loss_kept", "total"),
        ("loss_kept", "one_total"),
        ("loss_kept", "two_total"),
    ]


def test_a_total_without_a_graph_keeps_nothing():
    source = PARTS.replace("    total +=", "    with torch.no_grad():\n      total +=")
    assert ("loss_kept", "total") not in once(source, "loss_kept")


def test_what_a_window_keeps_is_gone_with_the_update():
    source = """
def update(model, optimizer, pieces):
    total = 0
    for x in pieces:
        loss = model(x).sum()
        (loss / 4).backward()
        total += loss
    optimizer.step()
    return float(total)
"""
    assert once(source, "loss_kept") == []
    inside = source.replace("    optimizer.step()", "        optimizer.step()")
    assert once(inside, "loss_kept") == [("loss_kept", "total")]


def test_a_part_that_never_goes_backward_is_not_kept():
    assert ("loss_kept", "two_total") not in once(PARTS.replace("one + two", "one"), "loss_kept")


TRAINER = (
    SETUP
    + """
class Trainer:
    def __init__(self):
        self.total = 0
    def batch(self, x):
        loss = model(x).sum()
        self.total += loss
        loss.backward()
        optimizer.step()
        {}
    def end(self):
        self.total = 0
trainer = Trainer()
for epoch in range(3):
    for x in loader:
        trainer.batch(x)
    trainer.end()
"""
)


def test_a_total_of_an_object_is_kept_unless_a_call_in_the_loop_empties_it():
    assert once(TRAINER.format("pass"), "loss_kept") == [("loss_kept", "self.total")]
    assert once(TRAINER.format("self.total = 0"), "loss_kept") == []
    assert once(TRAINER.format("self.total = self.total.detach()"), "loss_kept") == []


def test_modes_updates_and_opaque_calls():
    source = (
        SETUP
        + """
scaler = torch.amp.GradScaler()
model.eval()
scaler.update()
run(optimizer)
optimizer.step()
"""
    )
    assert events(source)[:3] == [
        ("mode", "model", False),
        ("scaler_update", "scaler"),
        ("opaque", ("optimizer",), "run"),
    ]


def test_places_are_those_of_the_calls():
    source = (
        SETUP
        + """
def train():
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
train()
"""
    )
    step = next(event for event in base(source) if event.kind == "step")
    assert (step.place.line, step.place.function) == (9, "train")


def test_what_comes_again_is_the_same_event():
    """No rule asks which of them it is; of a backward some do."""
    source = SETUP + "for epoch in range(3):\n  for x in loader:\n    model.train()" + STEP
    trace = base(source)
    for kind in (Drawn, Forward, Mode):
        found = trace.of(kind)
        assert len({id(event) for event in found}) == len(set(found)) < len(found)
    assert len({id(event) for event in trace.of(Backward)}) == len(trace.of(Backward))


KEEP = (
    SETUP
    + """
total, losses = 0, []
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    {}
"""
)


@pytest.mark.parametrize(
    ("keeps", "anew"),
    [
        ("total += loss", False),
        ("total += loss\n    if i % 500 == 499: total = 0", True),
        ("total += loss\n    if i == 500: total = 0", False),
        ("total += loss\n    if i % 500 == 499: print(total)", False),
        ("total += loss\n    if i % 500 == 499: total = total + 1", False),
        ("losses.append(loss)\n    if len(losses) == 500: losses.clear()", True),
        ("losses.append(loss)\n    if len(losses) == 500: losses = []", True),
        ("losses.append(loss)\n    if len(losses) == 500: print(losses)", False),
    ],
)
def test_losses_that_are_kept_until_a_count_is_reached(keeps, anew):
    kept = [event for event in base(KEEP.format(keeps)) if isinstance(event, LossKept)]
    assert {event.renewed for event in kept} == {anew}


@pytest.mark.parametrize(
    ("turns", "start", "anew"),
    [
        ("6", "total = 0", True),
        ("600", "total = 0", False),
        ("steps", "total = 0", False),
        ("6", "", False),
    ],
)
def test_losses_of_a_loop_with_few_turns_are_gone_with_it(turns, start, anew):
    source = f"""
total = 0
for epoch in range(30):
    {start or "pass"}
    for _ in range({turns}):
        optimizer.zero_grad()
        loss = model(data).mean()
        loss.backward()
        optimizer.step()
        total += loss
"""
    kept = [event for event in base(SETUP + source) if isinstance(event, LossKept)]
    assert {event.renewed for event in kept} == {anew}
