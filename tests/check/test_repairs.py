"""What real code, a newcomer and an attacker taught, from source to finding or fix."""

from __future__ import annotations

import pytest

from instep.check.fixing import fix_unit
from instep.check.judge import judge
from instep.check.sources import units_from_bytes
from instep.cli import main
from tests.check.execute.run import events

HEAD = "import torch\nimport torch.nn.functional as F\n"
MADE = HEAD + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
NEVER = "for x, y in loader:\n    F.mse_loss(model(x), y).backward()\n    optimizer.step()\n"


def unit_of(text):
    [unit] = units_from_bytes(text.encode(), "train.py")
    return unit


def found(text):
    return [(finding.code, finding.place.line) for finding in judge(unit_of(text)).findings]


def codes(text):
    return {code for code, _ in found(text)}


def mended(text):
    return fix_unit(unit_of(text), unsafe=False, judge=judge, accept=lambda _, f: f).text


def test_the_loop_that_all_others_here_vary_is_wrong():
    assert codes(MADE + NEVER) == {"INS101"}


def test_unknown_ways_to_clear_are_not_taken_for_nothing():
    patched = "torch.optim.SGD.step = my_step\n"
    assert codes(MADE + patched + NEVER) == set()
    forms = "from functools import singledispatch\n@singledispatch\ndef after(o):\n    pass\n"
    assert codes(MADE + forms + NEVER + "    after(optimizer)\n") == set()
    hook = "class T:\n    def on_step(self):\n        raise NotImplementedError\nt = T()\n"
    assert codes(MADE + hook + NEVER + "    t.on_step()\n") == set()


def test_text_that_is_executed_hides_a_loop_only_from_inside():
    assert codes(MADE + "exec(open('settings.py').read())\n" + NEVER) == {"INS101"}
    assert codes(MADE + NEVER + "    exec(after)\n") == set()


ACCUMULATE = """\
    for i, (x, y) in enumerate(loader):
        F.mse_loss(model(x), y).backward()
        if (i + 1) % {n} == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
"""


def test_the_numbers_of_a_message_are_the_defaults_in_sight():
    loop = ACCUMULATE.format(n="every")
    text = MADE + "def train(loader, every=6):\n" + loop
    assert "6 micro-batches" in judge(unit_of(text)).findings[0].message
    option = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--every', default=5)\n"
    )
    text = MADE + option + "args = p.parse_args()\nif True:\n" + ACCUMULATE.format(n="args.every")
    assert "5 micro-batches" in judge(unit_of(text)).findings[0].message


def test_a_part_of_somebody_elses_loop_need_not_clear():
    attack = """\
class Attack:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
    def run(self, x, y):
        for _ in range(self.steps):
            F.mse_loss(self.model(x), y).backward()
            self.optimizer.step()
"""
    assert codes(HEAD + attack) == set()


def test_a_step_without_backward_on_a_path_of_a_guard_is_no_mistake():
    text = MADE + (
        "for x, y in loader:\n    optimizer.zero_grad()\n    loss = F.mse_loss(model(x), y)\n"
        "    if is_valid(loss):\n        loss.backward()\n    optimizer.step()\n"
    )
    assert "INS104" not in codes(text)


CLIPPED = (
    MADE
    + """\
for i, (x, y) in enumerate(loader):
    (F.mse_loss(model(x), y) / 4).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {use}
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
)


def test_what_is_read_where_it_is_stays_there():
    assert "INS301" in codes(CLIPPED.format(use="print(norm)"))
    after = mended(CLIPPED.format(use="print(norm)"))
    assert after.index("norm = ") < after.index("print(norm)") < after.index("if (i")


def test_a_fix_uses_no_name_of_a_comprehension():
    text = (
        MADE
        + "opts = [optimizer]\n"
        + NEVER.replace("optimizer.step()", "[o.step() for o in opts]")
    )
    assert codes(text) == {"INS101"}
    assert "o.zero_grad()" not in mended(text)


def test_a_loader_that_may_have_no_length_is_not_asked_for_it():
    text = MADE + (
        "from torch.utils.data import IterableDataset\nfor epoch in range(9):\n"
        "    for i, (x, y) in enumerate(loader):\n"
        "        (F.mse_loss(model(x), y) / 4).backward()\n"
        "        if (i + 1) % 4 == 0:\n"
        "            optimizer.step()\n"
        "            optimizer.zero_grad()\n"
    )
    assert "INS202" in codes(text)
    assert "len(loader)" not in mended(text)


def test_a_source_is_not_overwritten_by_a_report(tmp_path, capsys):
    file = tmp_path / "train.py"
    file.write_text(MADE + NEVER)
    assert main(["check", "--no-cache", "--output-file", str(file), str(file)]) == 2
    assert main(["check", "--no-cache", "--write-baseline", str(file), str(file)]) == 2
    assert file.read_text() == MADE + NEVER
    assert "which would be lost" in capsys.readouterr().err


def test_a_window_that_came_out_wrong_is_given_up_on_another_path():
    guard = "    if loss.item() > limit:\n        optimizer.zero_grad()\n"
    loop = "for x, y in loader:\n    loss = F.mse_loss(model(x), y)\n    loss.backward()\n"
    assert events(MADE + loop + guard + "    optimizer.step()\n", "zero") == []


def test_parts_of_a_model_that_is_given_belong_to_it():
    trainer = """\
class T:
    def __init__(self, net):
        self.net = net
        held = list(net.encoder.parameters()) + list(net.decoder.parameters())
        self.o = torch.optim.Adam(held)
    def fit(self, loader):
        for x in loader:
            F.mse_loss(self.net(x), x).backward()
            self.o.step()
"""
    assert codes(HEAD + trainer) == {"INS101"}


def test_a_function_that_clears_may_be_called_by_whoever_is_given_it():
    trainer = """\
class T:
    def __init__(self, model, events):
        self.model = model
        self.o = torch.optim.SGD(model.parameters(), lr=0.1)
        {}
    def clear(self):
        self.o.zero_grad()
    def fit(self, loader):
        for x, y in loader:
            self.events.fire("batch")
            F.mse_loss(self.model(x), y).backward()
            self.o.step()
"""
    assert codes(HEAD + trainer.format('events.on("batch", self.clear)')) == set()
    assert codes(HEAD + trainer.format('events.on("batch", print)')) == {"INS101"}


def messages(text, code):
    return [finding.message for finding in judge(unit_of(text)).findings if finding.code == code]


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
        assert "leak into the first update of the next epoch, which holds 5" in message
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


KEPT = (
    MADE
    + """\
losses = []
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss)
"""
)


def test_a_list_of_losses_that_is_emptied_does_not_grow():
    assert codes(KEPT) == {"INS601"}
    for empty in "losses = []", "losses.clear()":
        assert codes(KEPT + f"    if i % 3 == 0:\n        {empty}\n") == set()
    assert codes(KEPT + "losses = []\n") == {"INS601"}


def test_losses_that_another_path_goes_back_through_are_kept_for_it():
    text = (
        HEAD
        + """\
def step(model, optimizer, batches, order, train):
    losses = []
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        loss.backward(retain_graph=True)
        losses.append(loss)
    if order == 1:
        optimizer.step()
        {one}
    else:
        {two}
        total = torch.stack(losses).mean()
        {three}
        optimizer.step()
"""
    )
    used = {"one": "optimizer.zero_grad()", "two": "optimizer.zero_grad()"}
    assert "INS601" not in codes(text.format(**used, three="total.backward()"))
    assert "INS601" in codes(text.format(**used, three="print(total)"))


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
    assert "the last 2 of 8 micro-batches never reach" in message
    uncleared = text.replace("    optimizer.zero_grad()\n    for i", "    for i")
    [message] = messages(uncleared, "INS202")
    assert "the last 2 of 8 micro-batches leak" in message
    assert "holds 5 instead of 3" in message


def test_the_parameters_of_a_loss_are_filled_by_what_it_is_a_term_of():
    text = (
        HEAD
        + """\
class CenterLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = torch.nn.Parameter(torch.zeros(10, 2))
    def forward(self, x, y):
        norms = torch.pow(self.centers, 2).sum(dim=1).expand(10, len(x)).t()
        apart = torch.pow(x, 2).sum(dim=1) + norms
        return apart[y].mean()
criterion = CenterLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.optim.SGD(criterion.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    other.zero_grad()
    out = model(x)
    loss = F.cross_entropy(out, y) + 0.003 * criterion(out, y)
    loss.backward()
    optimizer.step()
    for p in criterion.parameters():
        {look}
    other.step()
"""
    )
    assert codes(text.format(look="p.grad.data *= 1 / 0.003")) == set()
    assert codes(text.format(look="pass")) == set()


def test_a_function_that_trains_or_only_looks_clears_where_it_trains():
    text = (
        HEAD
        + """\
def run(net, batches, optimizer=None):
    for i in range(2):
        x, y = next(batches)
        if optimizer:
            optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        if optimizer:
            optimizer.step()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
while True:
    run(net, batches)
    rank(net)
    run(net, batches, optimizer)
"""
    )
    assert codes(text) == set()
    chunks = "    for a, b in zip(x.chunk(2), y.chunk(2)):\n"
    loop = "for x, y in loader:\n" + chunks + "{}    optimizer.step()\n"
    each = "        optimizer.zero_grad()\n        (F.mse_loss(model(a), b) / 2).backward()\n"
    assert codes(MADE + loop.format(each)) == {"INS102"}


def test_what_a_package_that_is_not_known_makes_may_not_notice_the_mode():
    text = (
        HEAD
        + """\
{made}
def validate(loader):
    model.eval()
    with torch.no_grad():
        return [model(x) for x, y in loader]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(9):
    model.train()
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        if i % 2 == 0:
            validate(others)
"""
    )
    package = "from monai.networks.nets import SwinUNETR\nmodel = SwinUNETR(1).to('cuda')"
    assert codes(text.format(made=package)) == set()
    vision = "import torchvision\nmodel = torchvision.models.resnet18()"
    assert codes(text.format(made=vision)) == codes(text.format(made="")) == {"INS604"}


def test_a_sketch_in_a_text_leaves_out_a_lot():
    loop = "for data in loader:\n    loss = {}\n    loss.backward()\n    optimizer.step()\n"
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

    def severities(loss, name="page.md", before=""):
        text = before + loop.format(loss)
        text = f"```python\n{text}```\n" if name.endswith("md") else text
        [unit] = units_from_bytes(text.encode(), name)
        return [finding.severity.name.lower() for finding in judge(unit).findings]

    assert severities("forward()") == ["warning"]
    assert severities("F.mse_loss(model(data), data)") == ["warning"]
    assert severities("F.mse_loss(model(data), data)", before=made) == ["error"]
    assert severities("forward()", "train.py") == ["error"]


def test_a_batch_that_an_attack_changes_goes_through_the_model_again():
    text = (
        MADE
        + """\
for x, y in loader:
    {clean}
    F.mse_loss(model(x + delta), y).backward()
    optimizer.zero_grad()
    loss = F.mse_loss(model(perturb(x, delta)), y)
    loss.backward()
    optimizer.step()
"""
    )
    assert codes(text.format(clean="delta.grad = None")) == set()


def test_gradients_of_some_parameters_are_cleared_by_name():
    text = (
        MADE
        + """\
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    for n, p in model.named_parameters():
        {test}
            p.grad = None
    optimizer.step()
"""
    )
    assert codes(text.format(test="if 'last_layer' in n:")) == set()
    assert codes(text.format(test="if p.grad is not None:")) == {"INS102"}
    guard = "if 'last_layer' not in n:\n            continue\n        if True:"
    assert codes(text.format(test=guard)) == set()


def test_a_model_that_is_frozen_in_turn_has_gradients_in_its_own():
    text = (
        HEAD
        + """\
def toggle(model, on):
    for p in model.parameters():
        p.requires_grad = on
optimizer = torch.optim.SGD(D.parameters(), lr=0.1)
for x, y in loader:
    toggle(D, True)
    optimizer.zero_grad()
    F.mse_loss(D(x), y).backward()
    for p in D.parameters():
        p.grad.data += 0.1 * p.data
    optimizer.step()
    toggle(D, False)
"""
    )
    assert codes(text) == set()
    assert "INS501" in codes(text.replace("toggle(D, True)", "toggle(D, False)"))


def test_two_optimizers_of_the_same_parameters_use_the_same_gradients():
    text = (
        HEAD
        + """\
model = torch.nn.Linear(2, 2)
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.Adam(model.parameters(), lr=0.1)
def update(optimizer, loss):
    {clear}
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
for x, y in loader:
    update(first, F.mse_loss(model(x), y))
for x, y in loader:
    update(second, F.mse_loss(model(x), y))
"""
    )
    assert codes(text.format(clear="optimizer.zero_grad()")) == set()
    assert "INS101" in codes(text.format(clear="pass"))


def test_a_function_gives_each_model_its_own_loss():
    text = (
        HEAD
        + """\
def measure(out, y):
    return ((out - y) ** 2).mean()
one, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
pairs = [(one, first), (other, second)]
for x, y in loader:
    for model, optimizer in pairs:
        measure(model(x), y).backward()
        optimizer.step()
        one.zero_grad()
        other.zero_grad()
"""
    )
    assert codes(text) == set()


LEAVES = """\
def start(size):
    return torch.randn(size) * 0.1
w, b = start(3), start(1)
leaves = [w, b]
optimizer = torch.optim.SGD(leaves, lr=0.1)
for x, y in loader:
    F.mse_loss(x @ w + b, y).backward()
    optimizer.step()
"""


def test_tensors_without_a_model_are_cleared_by_hand():
    assert codes(HEAD + LEAVES) == {"INS101"}
    each = HEAD + LEAVES + "    for p in leaves:\n        {}\n"
    assert codes(each.format("p.grad = torch.zeros_like(p.grad)")) == set()
    assert codes(each.format("p.grad = None")) == set()
    assert codes(each.format("p.grad.data.zero_()")) == set()
    other = HEAD + LEAVES + "    x.grad = None\n    other.grad.zero_()\n"
    assert codes(other) == {"INS101"}


def test_a_copy_of_the_best_model_replaces_none():
    text = (
        "import copy\n"
        + HEAD
        + """\
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = model
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss({used}(x), y).backward()
        optimizer.step()
    best = copy.deepcopy(model)
"""
    )
    assert codes(text.format(used="model")) == set()
    assert "INS503" in codes(text.format(used="best"))


def test_the_variable_of_a_loop_over_models_replaces_none():
    text = (
        HEAD
        + """\
student, teacher = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for net in (student, teacher):
    net.train()
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(student(x), teacher(x)).backward()
    optimizer.step()
"""
    )
    assert "INS503" not in codes(text)


def test_what_no_name_stands_for_is_not_missed_in_an_optimizer():
    text = (
        HEAD
        + """\
def batch_of(items):
    return torch.zeros(len(items), 3, requires_grad=True).float() + mask
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for items in loader:
    {made}
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    model.zero_grad()
"""
    )
    assert codes(text.format(made="x = batch_of(items)")) == set()
    named = "torch.zeros(len(items), 3, requires_grad=True)"
    local = text.replace("return torch", f"start = {named}\n    return start + torch")
    assert codes(local.format(made="x = batch_of(items)")) == set()


def test_where_dropout_is_off_the_mode_is_not_noticed():
    text = (
        HEAD
        + """\
from transformers import AutoConfig, AutoModel
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {setting}
        self.body = AutoModel.from_pretrained("base")
        self.head = torch.nn.Linear(8, 1)
    def forward(self, x):
        return self.head(self.body(x))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
"""
    )
    assert codes(text.format(setting="pass")) == {"INS604"}
    assert codes(text.format(setting="config.hidden_dropout_prob = 0.1")) == {"INS604"}
    assert codes(text.format(setting="self.drop_last = False")) == {"INS604"}
    assert codes(text.format(setting="self.norm = torch.nn.BatchNorm1d(1, drop=0)")) == {"INS604"}
    for setting in (
        "config.hidden_dropout_prob = 0.0",
        "config = AutoConfig.from_pretrained('base', attn_pdrop=0)",
        "config.update({'attention_dropout': 0})",
        "self.dropout = torch.nn.Dropout(0.0)",
    ):
        assert codes(text.format(setting=setting)) == set()


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


def test_a_message_reads_well():
    text = (
        HEAD
        + """\
def train(loader, optimizer):
    for x, y in loader:
        if a or b:
            if c:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
"""
    )
    [finding] = judge(unit_of(text)).findings
    assert finding.condition == "when (a or b) and c"
    [finding] = judge(unit_of(text.replace("if c:", "if True:"))).findings
    assert finding.condition == "when a or b"
    shared = (
        HEAD
        + """\
made = []
for model in (net_a, net_b):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made.append(optimizer)
for x, y in loader:
    F.mse_loss(net_a(net_b(x)), y).backward()
    made[0].step()
    made[1].step()
"""
    )
    [finding] = judge(unit_of(shared)).findings
    assert finding.message.startswith("`optimizer` is never cleared")


def test_one_of_several_returns_is_taken():
    text = (
        HEAD
        + """\
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def measure(out, y):
    if args.loss == "mse":
        return F.mse_loss(out, y)
    elif args.loss == "l1":
        return F.l1_loss(out, y)
def train():
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        measure(model(x), y).backward()
        optimizer.step()
        test()
def test():
    model.eval()
train()
"""
    )
    assert codes(text) == {"INS604"}


def test_trainings_in_loops_over_settings_vary_one_setting_at_a_time():
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    training = "      " + (made + NEVER).replace("\n", "\n      ")
    grid = "for a in (1, 2, 3):\n  for b in (True, False):\n    for c in ('x', 'y'):\n"
    alone = len(events(HEAD + "if True:\n" + training[4:].replace("\n      ", "\n  "), "drawn"))
    assert len(events(HEAD + grid + training, "drawn")) == (1 + 2 + 1 + 1) * alone
    assert codes(HEAD + grid + training) == {"INS101"}
    micro = "for a in (1, 2):\n  for b in (True, False):\n    F.mse_loss(model(a), b).backward()\n"
    assert len(events(MADE + micro + "  optimizer.step()\n", "backward")) == 4


def test_an_update_that_is_left_out_once_makes_no_window():
    loop = """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    if i != 1:
        optimizer.step()
"""
    assert codes(MADE + loop) == set()
    assert codes(MADE + loop.replace("i != 1", "i % 4 == 3")) == {"INS102"}


def test_a_model_that_is_cleared_and_trained_may_be_the_one_of_the_optimizer():
    trainer = """\
class T:
    def __init__(self, model):
        self.model = model
    def train(self, loader):
        optimizer = torch.optim.SGD(model.classifier.parameters(), lr=0.1)
        for x, y in loader:
            {}.zero_grad()
            F.mse_loss(self.model(x), y).backward()
            optimizer.step()
net = torch.nn.Linear(2, 2)
model = torch.nn.Sequential()
model.classifier = torch.nn.Linear(2, 2)
T(net).train(loader)
"""
    assert codes(HEAD + trainer.format("self.model")) & {"INS101"} == set()


def test_what_was_taken_for_a_tensor_and_is_cleared_is_a_model():
    trained = """\
for target in targets:
    model = prune(model, target)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    model.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""
    assert codes(HEAD + "model = torch.nn.Linear(2, 2)\n" + trained) == set()


def test_a_layer_without_parameters_is_not_missed_in_an_optimizer():
    loop = """\
norm = torch.nn.{}(8)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(head(norm(x)), y).backward()
    optimizer.step()
"""
    made = HEAD + "head = torch.nn.Linear(8, 8)\n"
    assert codes(made + loop.format("InstanceNorm2d")) == set()
    assert codes(made + loop.format("BatchNorm2d")) == {"INS502"}


def test_what_an_optimizer_holds_must_be_known_for_an_error():
    def severities(made):
        judgement = judge(unit_of(HEAD + made + NEVER))
        return [finding.severity.word for finding in judgement.findings]

    assert severities("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n") == ["error"]
    assert severities("optimizer = torch.optim.SGD(chosen, lr=0.1)\n") == ["warning"]


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


def test_the_same_question_has_the_same_answer():
    loop = """\
def train(encoder, decoder, loader):
    opt_d = torch.optim.Adam(decoder.parameters())
    opt_e = torch.optim.Adam(encoder.parameters())
    for x in loader:
        opt_d.zero_grad()
        if not {first}:
            loss = F.mse_loss(decoder(encoder.encode_batch(x)), x)
        else:
            opt_e.zero_grad()
            loss = F.mse_loss(decoder(encoder(x)), x)
        loss.backward()
        opt_d.step()
        if {second}:
            opt_e.step()
"""

    def asked(first, second):
        return codes(HEAD + loop.format(first=first, second=second))

    assert asked("encoder.ok()", "encoder.ok()") == set()
    assert asked("is_main()", "is_main()") == set()
    assert asked("encoder.ok()", "encoder.ready()") == {"INS101"}
    # What draws, or is asked of another loss, may well have another answer.
    assert asked("coins.pop()", "coins.pop()") == {"INS101"}
    assert asked("chance(x)", "chance(loss)") == {"INS101"}


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


LOSES = """\
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(10):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in test_loader:
            model(x)
"""
NET = """\
from torch import nn
class {name}(nn.Module):
    def __init__(self, {given}):
        super().__init__()
        self.f = {made}
    def forward(self, x):
        return self.f(x)
"""


def net(made, name="Net", given="*inner"):
    return NET.format(made=made, name=name, given=given)


def lost(classes, model="Net()"):
    return codes(HEAD + classes + f"model = {model}\n" + LOSES) == {"INS604"}


def test_a_model_of_layers_without_a_mode_loses_none():
    block = net("nn.Linear(4, 4)", "TransformerBlock")
    for made in (
        "nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4)])",
        "nn.LSTM(4, 4, batch_first=True)",
        "nn.Sequential(TransformerBlock(), nn.GRU(4, 4))",
        "[TransformerBlock for _ in range(2)]",
        "nn.Linear(4, 4)  # Size(4, 4)",
    ):
        assert not lost(block + net(made)), made
    dropping = net("nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))", "TransformerBlock")
    for made in (
        "nn.ModuleList([TransformerBlock()])",
        "[TransformerBlock for _ in range(2)]",
        "nn.LSTM(4, 4, 2, True, True, 0.5)",
        "nn.LSTM(4, 4, **options)",
        "nn.LSTM(*sizes)",
        "nn.GRU(4, 4, dropout=0.1)",
        "nn.TransformerEncoderLayer(4, 2)",
        "Elsewhere(4)",
    ):
        assert lost(dropping + net(made)), made
    derived = "class Derived(TransformerBlock):\n    pass\n"
    assert not lost(block + derived, "Derived()")
    assert lost(dropping + derived, "Derived()")


def test_a_model_that_is_given_one_with_a_mode_has_one():
    holder = net("nn.ModuleList([inner])", given="inner")
    dropping = net("nn.Dropout(0.1)", "Dropping")
    assert lost(holder + dropping, "Net(Dropping())")
    assert not lost(holder + net("nn.Linear(4, 4)", "Plain"), "Net(Plain())")


def test_a_model_that_comes_in_eval_mode_loses_none():
    bert = "from {0} import BertModel\nCHOSEN = BertModel\n"
    head = net("CHOSEN.from_pretrained('bert')\n        self.g = nn.Linear(4, 4)")
    head = head.replace("self.f(x)", "self.g(self.f(x))")
    assert not lost(bert.format("transformers") + head)
    assert lost(bert.format("transformers") + head, "Net().train()")
    assert lost(bert.format("other") + head)


def test_a_train_that_trains_is_no_mode():
    model = net("nn.Dropout(0.1)")
    method = """\
    def train(self{}):
        optimizer = torch.optim.Adam(self.parameters())
        for epoch in range(10):
            {}
            for x, y in self.loader:
                optimizer.zero_grad()
                F.mse_loss(self(x), y).backward()
                optimizer.step()
            self.eval()
            with torch.no_grad():
                self(self.x)
"""
    assert codes(HEAD + model + method.format(", callback", "self.train()")) == set()
    assert codes(HEAD + model + method.format("", "pass").replace("train", "fit")) == {"INS604"}


def test_a_tensor_that_is_updated_by_hand_is_trained():
    loop = """\
multiplier = torch.tensor(1.0, requires_grad=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x) * multiplier, y).backward()
    optimizer.step()
    {}
"""
    made = HEAD + "model = torch.nn.Linear(2, 2)\n"
    for update in (
        "with torch.no_grad(): multiplier += 0.1 * multiplier.grad",
        "with torch.no_grad(): multiplier.add_(0.1 * multiplier.grad)",
        "multiplier.data -= 0.1 * multiplier.grad",
        "multiplier.data.sub_(0.1 * multiplier.grad)",
    ):
        assert "INS502" not in codes(made + loop.format(update)), update
    for other in ("print(multiplier)", "multiplier.data.clamp_(0, 1)"):
        assert "INS502" in codes(made + loop.format(other)), other


def test_a_total_of_a_loop_that_runs_once_keeps_one_graph():
    loop = """\
{before}for epoch in range(100):
    {within}
    for step in range({times}):
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        total += loss
        optimizer.step()
    print(total)
"""

    def kept(times, before="", within="total = 0.0"):
        return codes(MADE + loop.format(times=times, before=before, within=within)) == {"INS601"}

    assert not kept(1)
    assert not kept("n", "n = 1\n")
    assert kept(2)
    assert kept(1, "total = 0.0\n", "pass")


JOINT = """
class Agent:
    def __init__(self, size, mine):
        self.mine = mine
        self.policy = torch.nn.Linear(4, 2)
        self.value = torch.nn.Linear(6, 1)
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters())
        self.value_optimizer = torch.optim.Adam(self.value.parameters())

    def learn(self, seen, wanted, size):
        moves = []
        for k in range(size):
            moves.append(seen[k])
        value_loss = F.mse_loss(self.value(seen, moves), wanted)
        {store}
        policy_loss = -self.value(seen, moves).mean()
        self.policy_optimizer.zero_grad()
        policy_loss.backward()
        self.policy_optimizer.step()
        {between}self.value_optimizer.zero_grad()
        value_loss.backward()
        self.value_optimizer.step()
"""


def test_what_is_put_into_a_list_at_an_unknown_place_is_in_it():
    store = "moves[self.mine] = self.policy(seen[self.mine])"
    assert codes(HEAD + JOINT.format(store=store, between="")) == set()
    again = "value_loss.backward(retain_graph=True)\n        "
    assert "INS102" in codes(HEAD + JOINT.format(store=store, between=again))
    assert "INS104" in codes(HEAD + JOINT.format(store="self.policy(seen)", between=""))


NUMBERS = """
def train(net, optimizer, loader, every):
    kept = []
    loss = 0.0
    for i, x in enumerate(loader):
        if i % every == 0:
            optimizer.zero_grad()
            loss = net(x).mean()
            loss.backward()
            optimizer.step()
        if {test}:
            kept.append({number})
        else:
            kept.append({tensor})
"""


def test_a_branch_for_numbers_holds_no_tensor():
    for test in (
        "type(loss) == float",
        "type(loss) is float",
        "float == type(loss)",
        "type(loss) in (int, float)",
        "isinstance(loss, float)",
        "isinstance(loss, (int, float))",
    ):
        right = HEAD + NUMBERS.format(test=test, number="loss", tensor="loss.item()")
        assert codes(right) == set(), test
        wrong = HEAD + NUMBERS.format(test=test, number="loss", tensor="loss")
        assert codes(wrong) == {"INS601"}, test
    for test in (
        "type(loss) != float",
        "type(loss) is not float",
        "type(loss) not in [int, float]",
        "not isinstance(loss, float)",
        "type(loss) == torch.Tensor",
        "type(loss) is torch.Tensor",
        "isinstance(loss, torch.Tensor)",
    ):
        right = HEAD + NUMBERS.format(test=test, number="loss.item()", tensor="0.0")
        assert codes(right) == set(), test
        wrong = HEAD + NUMBERS.format(test=test, number="loss", tensor="0.0")
        assert codes(wrong) == {"INS601"}, test


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


ROLLOUT = """
def improve(model, optimizer, rollout):
    for {outer} in {times}:
        for start in range(0, 64, 16):
            part = rollout[{part}]
            optimizer.zero_grad()
            loss = F.mse_loss(model(part), part)
            loss.backward()
            optimizer.step()

for rollout in loader:
    improve(model, optimizer, rollout)
"""


def test_slices_of_what_is_gone_through_again_and_again_are_mini_batches():
    def steps_per_patch(outer="_", times="range(4)", part="start:start + 16"):
        return "INS103" in codes(MADE + ROLLOUT.format(outer=outer, times=times, part=part))

    assert not steps_per_patch()
    assert not steps_per_patch("epoch", "range(epochs)")
    assert steps_per_patch(times="range(1)")
    assert steps_per_patch("top", "range(0, 64, 16)", ":, top:top + 16, start:start + 16")
    assert steps_per_patch("channel", "range(3)", ":, channel, start:start + 16")


ROWS = """
def improve(model, optimizer, image, row):
    for start in range(0, 64, 16):
        part = image[:, row, start:start + 16]
        optimizer.zero_grad()
        F.mse_loss(model(part), part).backward()
        optimizer.step()

for image in loader:
    for k in range(3):
        improve(model, optimizer, image, k)
"""


def test_what_a_loop_hands_to_the_next_one_may_be_a_row():
    assert "INS103" in codes(MADE + ROWS)


def test_a_class_of_a_loss_that_is_called_like_an_object_of_it_is_not_judged():
    loop = """
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_function = torch.nn.BCELoss{called}
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_function(model(x), y)
    {backward}
    optimizer.step()
"""
    assert codes(HEAD + loop.format(called="", backward="loss.backward()")) == set()
    assert codes(HEAD + loop.format(called="()", backward="loss.backward()")) == set()
    assert codes(HEAD + loop.format(called="()", backward="print(loss)")) == {"INS104"}


def test_a_model_in_no_optimizer_is_told_once():
    loop = """
encoder = torch.nn.Linear(8, 4)
decoder = torch.nn.Linear(4, 8)
judge = torch.nn.Linear(8, 1)
one = torch.optim.Adam(decoder.parameters())
two = torch.optim.Adam({held})
for x in loader:
    made = decoder(encoder(x))
    one.zero_grad()
    F.mse_loss(made, x).backward(retain_graph=True)
    one.step()
    two.zero_grad()
    judge(made).mean().backward()
    two.step()
"""
    assert found(HEAD + loop.format(held="judge.parameters()")) == [("INS502", 12)]
    both = "[*judge.parameters(), *encoder.parameters()]"
    assert "INS502" not in codes(HEAD + loop.format(held=both))


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


def test_what_is_put_into_a_model_and_turns_out_to_be_one_is_its_part():
    text = """\
class Model(torch.nn.Module):
    def __init__(self, x):
        super().__init__()
        self.x, self.net, self.measure = x, torch.nn.Linear(2, 2), torch.nn.MSELoss()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
    def closure(self):
        self.optimizer.zero_grad()
        self.loss = self.measure(self.net(self.x), self.x)
        self.loss.backward()
        return self.loss
    def again(self):
        self.net.train()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        for epoch in range(10):
            self.optimizer.step(self.closure)
model = Model(1)
model.net = torch.load("net.pt")
model.net.eval()
model.again()
"""
    assert codes(HEAD + text) == set()


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


def test_what_a_scaler_scales_is_a_loss_whatever_it_looks_like():
    text = """\
scaler = torch.amp.GradScaler("cuda")
def total(outputs):
    return 0
for x, y in loader:
    optimizer.zero_grad()
    scaler.scale(total(model(x))).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    assert codes(MADE + text) == set()


def test_a_clip_whose_gradients_are_cleared_before_the_step_limits_nothing():
    text = """\
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    scaler.scale(F.mse_loss(model(x), y)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {}
    scaler.scale(F.mse_loss(model(attacked(x)), y)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
    assert "INS303" not in codes(MADE + text.format("optimizer.zero_grad()"))
    assert "INS303" in codes(MADE + text.format("print(x)"))


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


def test_a_clip_between_two_steps_is_felt_by_the_second():
    text = (
        MADE
        + """\
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {}
"""
    )
    assert codes(text.format("optimizer.step()")) == {"INS104"}
    assert codes(text.format("pass")) == {"INS302"}


def test_the_parts_of_a_model_are_not_made_when_they_are_called():
    text = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.P = {}

    def forward(self, x):
        return self.P(x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    validate(model)
"""
    assert codes(text.format("nn.Linear(2, 2)")) == set()
    assert codes(text.format("nn.Dropout(0.5)")) == {"INS604"}


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


SCALED = (
    MADE
    + """\
scaler = torch.amp.GradScaler()
for x, y in loader:
    with torch.autocast("cuda"):
        loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    {unscale}
    torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})
    scaler.step(optimizer)
    scaler.update()
"""
)


def test_an_optimizer_that_is_named_is_unscaled():
    named = "scaler.unscale_(optimizer=optimizer)"
    assert codes(SCALED.format(unscale=named, limit="1.0")) == set()
    assert "INS307" in codes(SCALED.format(unscale=f"{named}; {named}", limit="1.0"))
    assert "INS303" in codes(SCALED.format(unscale="pass", limit="1.0"))


@pytest.mark.parametrize("limit", ["float('inf')", "float('INF')", "torch.inf", "math.inf"])
def test_a_clip_without_a_limit_only_measures(limit):
    assert "INS303" not in codes("import math\n" + SCALED.format(unscale="pass", limit=limit))


def test_a_loss_that_is_cut_in_place_holds_no_graph():
    kept = MADE + "total = 0\nfor x, y in loader:\n    loss = F.mse_loss(model(x), y)\n"
    kept += "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n    {cut}\n"
    kept += "    total += loss\n"
    assert "INS601" in codes(kept.format(cut="pass"))
    assert "INS601" not in codes(kept.format(cut="loss.detach_()"))


def test_parameters_that_are_cut_off_are_frozen():
    used = HEAD + "encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)\n{frozen}\n"
    used += "optimizer = torch.optim.SGD(head.parameters(), lr=0.1)\n"
    used += "for x, y in loader:\n    optimizer.zero_grad()\n"
    used += "    F.mse_loss(head(encoder(x)), y).backward()\n    optimizer.step()\n"
    assert codes(used.format(frozen="pass")) == {"INS502"}
    assert codes(used.format(frozen="for p in encoder.parameters(): p.detach_()")) == set()


@pytest.mark.parametrize("clear", ["setattr(p, 'grad', None)", "p.grad.mul_(0)"])
def test_gradients_that_are_cleared_oddly(clear):
    loop = MADE + NEVER + f"    for p in model.parameters(): {clear}\n"
    assert "INS101" not in codes(loop)


def test_of_a_loss_that_cannot_be_seen_nothing_is_certain():
    loop = GATED_LOOP.format(divide="pass", backward="loss.backward()", before="pass")
    unseen = loop.replace("F.mse_loss(model(x), y)", "ComputeLoss()(model(x), y)")
    [finding] = [f for f in judge(unit_of(unseen)).findings if f.code == "INS201"]
    assert finding.severity.word == "warning"
    assert finding.message.startswith("if the loss is a mean over its batch: ")
    assert mended(unseen) == unseen  # a sum may be meant: only with --unsafe-fixes
    assert mended(loop) != loop


def test_a_layer_whose_parameters_are_only_renamed_is_not_replaced():
    text = (
        MADE
        + """\
model.head = torch.nn.utils.{}(model.head)
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""
    )
    for kept in ("spectral_norm", "parametrizations.spectral_norm", "parametrizations.orthogonal"):
        assert codes(text.format(kept)) == set()
    for renewed in ("weight_norm", "parametrizations.weight_norm"):
        assert codes(text.format(renewed)) == {"INS503"}


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


def severities(text):
    return {
        (finding.code, finding.severity.name.lower()) for finding in judge(unit_of(text)).findings
    }


def test_slices_of_a_file_are_mini_batches_and_patches_of_an_image_are_not():
    step = """\
        optimizer.zero_grad()
        F.mse_loss(model({}), {}).backward()
        optimizer.step()
"""
    sliced = "    for i in range(0, len(x), 32):\n" + step.format("x[i:i + 32]", "y[i:i + 32]")
    file = MADE + "for file in files:\n    x, y = load(file)\n" + sliced
    batch = MADE + "for x, y in loader:\n" + sliced
    unfolded = """\
for x, y in loader:
    xs = x.unfold(2, 64, 64).reshape(-1, 3, 64)
    for p, q in zip(xs.split(4), y.split(4)):
"""
    assert severities(file) <= {("INS103", "info")}
    assert severities(batch) == {("INS103", "warning")}
    assert severities(MADE + unfolded + step.format("p", "q")) == {("INS103", "warning")}


def test_train_mode_comes_back_in_many_ways():
    text = (
        HEAD
        + """\
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(held_out)
    {}
"""
    )
    for back in (
        "for q in model.children(): q.train()",
        "for q in model.modules(): q.training = True",
        "[q.train() for q in model]",
        "model.apply(lambda q: q.train())",
        "getattr(model, 'train')()",
        "torch.nn.Module.train(model)",
    ):
        assert codes(text.format(back)) == set(), back
    for lost in (
        "for q in model.children(): q.eval()",
        "for q in model.modules(): q.training = False",
        "[q.eval() for q in model]",
        "model.apply(lambda q: q.float())",
        "getattr(model, 'eval')()",
    ):
        assert codes(text.format(lost)) == {"INS604"}, lost


HALVES = """\
class Halves:
    def __init__(self, net, options):
        self.net, self.is_half = net, options.half
        self.halves = [p for _, p in net.named_parameters()]
        self.copies = [p.clone().detach() for p in self.halves]
        self.optimizer = torch.optim.Adam(groups(self.copies), 1e-3)

    def train(self, loader):
        for x, y in loader:
            loss = F.mse_loss(self.net(x), y)
            for half in self.halves:
                half.grad = None
            loss.backward()
            self.optimizer.zero_grad()
            for copy, half in zip(self.copies, self.halves):
                {write}
            self.optimizer.step()
"""


@pytest.mark.parametrize("write", ["copy.grad.copy_(half.grad)", "copy.grad = half.grad.float()"])
def test_copies_of_parameters_get_their_gradients_by_hand(write):
    assert "INS102" in codes(HEAD + HALVES.format(write="print(copy)"))
    assert "INS102" not in codes(HEAD + HALVES.format(write=write))


@pytest.mark.parametrize(("number", "severity"), [("4", "error"), ("options.every", "warning")])
def test_a_clear_per_micro_batch_is_as_bad_as_windows_are_certain(number, severity):
    loop = MADE + "for i, (x, y) in enumerate(loader):\n    optimizer.zero_grad()\n"
    loop += f"    (F.mse_loss(model(x), y) / {number}).backward()\n"
    loop += f"    if (i + 1) % {number} == 0:\n        optimizer.step()\n"
    found_ = {f.code: f.severity.word for f in judge(unit_of(loop)).findings}
    assert found_["INS102"] == severity
