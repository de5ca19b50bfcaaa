"""What real code taught about windows: their sizes, their divisors, what is left over."""

from __future__ import annotations

import pytest

from instep.check.judge import judge
from tests.check.execute.run import events
from tests.check.repairs import ACCUMULATE, HEAD, MADE, codes, mended, messages, unit_of


def test_a_window_that_came_out_wrong_is_given_up_on_another_path():
    guard = "    if loss.item() > limit:\n        optimizer.zero_grad()\n"
    loop = "for x, y in loader:\n    loss = F.mse_loss(model(x), y)\n    loss.backward()\n"
    assert events(MADE + loop + guard + "    optimizer.step()\n", "zero") == []


EPOCHS = (
    MADE
    + """\
for epoch in range({epochs}):
    for i, (x, y) in enumerate(loader):
        if {skip}:
            break
        (F.mse_loss(model(x), y) / 3).backward()
        if (i + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
)


def test_what_one_epoch_leaves_behind_meets_the_next_even_where_only_one_was_seen():
    skipped = EPOCHS.format(epochs="epochs", skip="args.pseudo and epoch == 0")
    shown = skipped.replace("for epoch", "if args.pseudo:\n    print()\nfor epoch")
    for text in (skipped, shown):
        [message] = messages(text, "INS202")
        assert "leak into the first update of the next (2 of 8, for example, and it" in message
    once = MADE + "if args.debug:\n    epochs = 1\n"
    text = once + EPOCHS.format(epochs="epochs", skip="False").removeprefix(MADE)
    assert "leak" in messages(text, "INS202")[0]
    assert "never reach" in messages(EPOCHS.format(epochs="1", skip="False"), "INS202")[0]
    cleared = text.replace("    for i,", "    optimizer.zero_grad()\n    for i,")
    assert "never reach" in messages(cleared, "INS202")[0]


def test_a_loop_that_ends_at_a_number_far_away_may_end_where_a_window_does():
    loop = """\
steps = 0
for x, y in loader:
    if steps >= {last}:
        break
    (F.mse_loss(model(x), y) / 4).backward()
    steps += 1
    if steps % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
    assert codes(MADE + loop.format(last="1000 * 4")) == set()
    assert codes(MADE + loop.format(last="most")) == set()
    assert codes(MADE + loop.replace("if steps >= {last}", "if False")) == {"INS202"}


ADDED = """\
for i, (x, y) in enumerate(loader):
    loss = {loss}
    loss.backward()
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_sum_of_what_is_not_known_is_a_sum():
    own = "class MyLoss(torch.nn.Module):\n    def forward(self, x, y):\n        return {}\n"
    made = "criterion = MyLoss()\n"
    loop = "    out = torch.zeros(3, 4)\n    out[0] = model(x)\n    loss = criterion(out, y)"
    loop = ADDED.replace("    loss = {loss}", loop)
    assert codes(MADE + own.format("torch.sum(0.5 * (x - y))") + made + loop) == set()
    assert codes(MADE + own.format("(0.5 * (x - y)).sum()") + made + loop) == set()
    assert codes(MADE + own.format("torch.mean(0.5 * (x - y))") + made + loop) == {"INS201"}


def test_a_loss_that_the_model_returns_may_be_a_sum():
    assert codes(MADE + ADDED.format(loss="model(x, labels=y)")) == set()
    assert codes(MADE + ADDED.format(loss="model(x, labels=y).mean()")) == set()
    assert codes(MADE + ADDED.format(loss="model(x, labels=y).loss")) == {"INS201"}
    assert codes(MADE + ADDED.format(loss="criterion(model(x), y)")) == {"INS201"}


def test_what_is_left_over_is_counted_in_the_batches_of_the_gate():
    text = (
        MADE
        + """\
for epoch in range(9):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        for q in range(len(x)):
            F.mse_loss(model(x[q]), y[q], reduction="sum").backward()
        if (i + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
    )
    [message] = messages(text, "INS202")
    assert "never reach an update (2 of 8, for example)" in message
    uncleared = text.replace("    optimizer.zero_grad()\n    for i", "    for i")
    [message] = messages(uncleared, "INS202")
    assert "leak into the first update of the next (2 of 8, for example" in message
    assert "holds 5 instead of 3" in message


def test_settings_that_are_read_from_their_class_are_what_is_written():
    text = (
        MADE
        + """\
from dataclasses import dataclass, field
@dataclass
class cfg:
    plain: int = {n}
    made: int = field(default={n}, metadata={{"help": "micro-batches"}})
if True:
"""
    )
    loop = ACCUMULATE.replace(" or i + 1 == len(loader)", "")
    for every in ("cfg.plain", "cfg.made"):
        assert "INS202" not in codes(text.format(n=1) + loop.format(n=every))
        assert "INS202" in codes(text.format(n=4) + loop.format(n=every))
        mine = loop.format(n=every).replace("cfg", "cfg()")
        assert "INS202" in codes(text.format(n=1) + mine)
        given = text.format(n=1).replace("if True:", "def train(cfg):") + loop.format(n=every)
        assert "INS202" in codes(given)


def test_a_window_of_one_turn_through_what_is_cycled_beside_the_batches():
    loop = """\
from itertools import cycle
def train(loader, model, optimizer, heads):
{before}    for i, (batch, head) in enumerate(zip(loader, cycle({through}))):
        if i % {every} == 0:
            optimizer.zero_grad()
        F.mse_loss(model(batch, head), batch).mean().backward()
        if (i + 1) % {every} == 0:
            optimizer.step()
"""

    def through(name, every, before=""):
        return codes(HEAD + loop.format(through=name, every=every, before=before))

    assert through("heads", "len(heads)") == set()
    assert through("heads", "n", "    n = len(heads)\n") == set()
    assert through("('a', 'b', 'c')", 3) == set()
    assert through("heads", "len(others)") == {"INS201", "INS202"}
    assert through("('a', 'b', 'c')", 4) == {"INS201", "INS202"}


def test_epochs_that_are_counted_from_one_are_as_many():
    loop = """\
def train(loader, model, args):
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    count = 0
    for epoch in range({}):
        for x, y in loader:
            {}
            loss = F.mse_loss(model(x), y) / args.acc
            loss.backward()
            if count % args.acc == 0:
                optimizer.step()
                optimizer.zero_grad()
"""
    for epochs in ("args.epochs", "1, 1 + args.epochs", "1, args.epochs", "first, args.epochs"):
        assert codes(HEAD + loop.format(epochs, "count += 1")) == set(), epochs
    assert codes(HEAD + loop.format("1", "count += 1")) == {"INS202"}


ONE_EPOCH = """
EPOCHS = {epochs}
WINDOW = 2
for epoch in {range}:
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y) / WINDOW
        loss.backward()
        if (i + 1) % WINDOW == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_after_the_only_epoch_nothing_leaks_into_another_one():
    for range_ in ("range(EPOCHS)", "tqdm(range(EPOCHS))", "range(0, EPOCHS)"):
        messages = {
            epochs: [
                finding.message
                for finding in judge(
                    unit_of(
                        "from tqdm import tqdm\n"
                        + MADE
                        + ONE_EPOCH.format(epochs=epochs, range=range_)
                    )
                ).findings
            ]
            for epochs in ("1", "5", "settings.epochs")
        }
        assert all(len(found) == 1 for found in messages.values()), range_
        assert "never reach an update" in messages["1"][0]
        assert "leak into the first update" in messages["5"][0]
        assert "leak into the first update" in messages["settings.epochs"][0]


SETTINGS = 'class settings:\n    optimizer = "sgd"\n    window = {}\n'


WINDOWS = """
import torch
import settings
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    (torch.nn.functional.mse_loss(model(x), y) / settings.window).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (i + 1) % settings.window == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_module_is_asked_for_what_the_class_of_its_name_has(tmp_path):
    def windows(text):
        steps = events(WINDOWS, "step", files={"settings.py": text}, folder=tmp_path)
        return {every for _, _, every in steps}

    (tmp_path / ".git").mkdir()
    assert windows(SETTINGS.format(1)) == {1}
    assert windows(SETTINGS.format(4)) == {4}
    assert windows("class settings:\n    optimizer = 1\n") == {3}
    assert windows(SETTINGS.format(1).replace("settings", "Other")) == {3}
    assert windows(SETTINGS.format(1) + "window = 2\n") == {2}


def test_a_branch_for_several_pieces_is_taken_where_there_are_several():
    text = """\
for images, labels in loader:
    optimizer.zero_grad()
    for x, y in zip(*subdivide(images, labels)):
        F.mse_loss(model(x), y).backward()
    if {}:
        for parameter in model.parameters():
            parameter.grad.data.div_(settings.pieces)
    optimizer.step()
"""
    for several in ("settings.pieces > 1", "settings.pieces >= 2", "settings.pieces != 1"):
        assert codes(MADE + text.format(several)) == set()
    assert codes(MADE + text.format("settings.divides")) == {"INS201"}


def test_adam_evens_out_what_is_not_divided_unless_it_is_clipped():
    text = """\
for i, (x, y) in enumerate(loader):
    F.mse_loss(model(x), y).backward()
    if (i + 1) % 4 == 0:
        {}
        optimizer.step()
        optimizer.zero_grad()
"""
    made = HEAD + "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.{}(model.parameters())\n"
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"

    def told(kind, clips):
        found = judge(unit_of(made.format(kind) + text.format(clips))).findings
        return next((f.severity.name, f.message) for f in found if f.code == "INS201")

    assert told("SGD", "pass")[0] == told("AdamW", clip)[0] == "ERROR"
    assert "the update" in told("SGD", "pass")[1]
    severity, message = told("AdamW", "pass")
    assert severity == "WARNING"
    assert "AdamW evens out" in message
    assert "the gradient" in told("Unheard", "pass")[1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('args = parser.parse_args()\nparser.add_argument("--accum", default=1)\n', "info"),
        ('args = parser.parse_args()\nparser.add_argument("--accum", default=4)\n', "warning"),
        ("args = load()\n", "warning"),
    ],
)
def test_windows_of_one_batch_unless_somebody_asks_for_more(given, told):
    loop = """\
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        (F.mse_loss(model(x), y){}).backward()
        if ({}) % args.accum == 0:
            optimizer.step()
            optimizer.zero_grad()
"""

    def found(division, count):
        text = MADE + given + loop.format(division, count)
        return {f.code: f.severity.name.lower() for f in judge(unit_of(text)).findings}

    assert found(" / args.accum", "i + 1") == {"INS202": told}
    assert found(" / args.accum", "i")["INS204"] == told
    assert found("", "i + 1")["INS201"] == told


GATED_LOOP = (
    MADE
    + """\
for i, (x, y) in enumerate(loader):
    loss = F.mse_loss(model(x), y)
    {divide}
    {backward}
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        {before}
        optimizer.step()
        optimizer.zero_grad()
"""
)


@pytest.mark.parametrize(
    "divide",
    ["loss.div_(4)", "loss.mul_(0.25)", "loss.divide_(4)", "loss = loss.divide(4)",
     "loss = loss.multiply(0.25)", "loss.lerp_(target, 0.75)"],
)  # fmt: skip
def test_a_loss_that_is_divided_in_place_is_divided(divide):
    loop = GATED_LOOP.format(divide=divide, backward="loss.backward()", before="pass")
    assert "INS201" not in codes(loop)
    assert "INS201" in codes(loop.replace(divide, "pass"))
    assert "INS201" in codes(loop.replace(divide, "loss.add_(penalty)"))


@pytest.mark.parametrize(
    "before",
    ["for p in model.parameters(): p.grad.data = p.grad.data / 4",
     "for p in model.parameters(): p.grad.divide_(4)",
     "torch._foreach_div_([p.grad for p in model.parameters()], 4)"],
)  # fmt: skip
def test_gradients_that_are_divided_before_the_step(before):
    loop = GATED_LOOP.format(divide="pass", backward="loss.backward()", before=before)
    assert "INS201" not in codes(loop)


@pytest.mark.parametrize(
    "backward",
    ["loss.backward(gradient=torch.full_like(loss, 0.25))",
     "torch.autograd.backward(loss, torch.tensor(0.25))",
     "torch.autograd.backward([loss], grad_tensors=[torch.tensor(0.25)])"],
)  # fmt: skip
def test_a_weight_that_is_given_to_the_backward(backward):
    loop = GATED_LOOP.format(divide="pass", backward=backward, before="pass")
    assert "INS201" not in codes(loop)
    bare = loop.replace(backward, "torch.autograd.backward([loss])")
    assert "INS201" in codes(bare)


def test_of_a_loss_that_cannot_be_seen_nothing_is_certain():
    loop = GATED_LOOP.format(divide="pass", backward="loss.backward()", before="pass")
    unseen = loop.replace("F.mse_loss(model(x), y)", "ComputeLoss()(model(x), y)")
    [finding] = [f for f in judge(unit_of(unseen)).findings if f.code == "INS201"]
    assert finding.severity.word == "warning"
    assert finding.message.startswith("if the loss is a mean over its batch: ")
    assert mended(unseen) == unseen  # a sum may be meant: only with --unsafe-fixes
    assert mended(loop) != loop
