"""What published packages taught: trainers with options, guards of their own and gradients by hand.

Each right loop stands beside one that differs in what makes it right, and is found.
"""

from __future__ import annotations

import pytest

from instep.check.judge import judge
from tests.check.repairs import HEAD, MADE, codes, unit_of

SCALED = (
    MADE
    + """
scaler = torch.amp.GradScaler("cuda", enabled=options.fp16)
for x, y in loader:
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {again}
    scaler.step(optimizer)
    scaler.update()
"""
)


@pytest.mark.parametrize(
    "guard",
    [
        'scaler._per_optimizer_states[id(optimizer)]["stage"] is not OptState.UNSCALED',
        "not scaler.is_enabled()",
    ],
)
def test_who_asks_a_scaler_may_unscale_as_often_as_it_allows(guard):
    again = "if {}:\n        scaler.unscale_(optimizer)"
    assert "INS307" in codes(SCALED.format(again=again.format("options.twice")))
    assert "INS307" not in codes(SCALED.format(again=again.format(guard)))


TURNS = (
    HEAD
    + """
first = torch.optim.SGD(model.encoder.parameters(), lr=0.1)
second = torch.optim.SGD(model.decoder.parameters(), lr=0.1)
for epoch in range(9):
    for optimizer in (first, second):
        for x, y in loader:
            {clear}
            F.mse_loss(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
"""
)


def test_what_other_losses_leave_in_an_optimizer_is_clipped_and_cleared():
    assert "INS301" not in codes(TURNS.format(clear="optimizer.zero_grad()"))
    window = "for i, (x, y) in enumerate(loader):\n    (F.mse_loss(model(x), y) / 4).backward()\n"
    window += "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    window += "    if i % 4 == 3:\n        optimizer.step()\n        optimizer.zero_grad()\n"
    assert "INS301" in codes(MADE + window)


ATTACK = """
features = torch.tensor(given, requires_grad=True)
weights = torch.tensor(other, requires_grad=True)
optimizer = torch.optim.Adam([weights])
for rows in batches:
    chosen = features[rows]
    likelihood = F.logsigmoid(chosen.mm(weights)).sum()
    chosen.retain_grad()
    likelihood.backward(retain_graph=True)
    delta = {looks}
    loss = -likelihood - F.logsigmoid((chosen + delta).mm(weights)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_backward_for_the_gradients_of_something_else():
    assert "INS102" not in codes(HEAD + ATTACK.format(looks="chosen.grad"))
    assert "INS102" in codes(HEAD + ATTACK.format(looks="0.1"))


ACTOR = """
actor_optimizer = torch.optim.Adam(actor.parameters())
critic_optimizer = torch.optim.Adam(critic.parameters())
for batch in loader:
    values = critic(batch)
    actor_optimizer.zero_grad()
    (values.mean() * weight).backward(retain_graph=True)
    {between}
    critic_optimizer.zero_grad()
    F.mse_loss(values, target).backward()
    critic_optimizer.step()
"""


def test_a_loss_that_another_optimizer_has_stepped_on():
    assert "INS102" in codes(HEAD + ACTOR.format(between="pass"))
    assert "INS102" not in codes(HEAD + ACTOR.format(between="actor_optimizer.step()"))


SPLIT = """
changes = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x + changes), y)
    loss.backward()
    optimizer.step()
    {after}
"""


@pytest.mark.parametrize(
    "after", ["send(changes.grad)", "total = torch.autograd.grad(loss, changes)[0]"]
)
def test_parameters_whose_gradient_is_asked_for_need_no_optimizer(after):
    assert "INS502" in codes(HEAD + SPLIT.format(after="pass"))
    assert "INS502" not in codes(HEAD + SPLIT.format(after=after))


WARM = (
    MADE
    + """
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
def train_step(x, y):
    step = int(counter.item())
    if {test}:
        set_rate(step)
    else:
        scheduler.step()
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
for x, y in loader:
    train_step(x, y)
"""
)


def test_a_schedule_that_begins_after_a_warm_up():
    assert "INS401" in codes(WARM.format(test="options.constant"))
    assert "INS401" not in codes(WARM.format(test="step < options.num_warmup_steps"))


PARSER = (
    HEAD
    + """
class Parser:
    def train(self, data, update_steps={default}, **options):
        args = Config().update(locals())
        self.args = args
    def _train(self, loader):
        for i, (x, y) in enumerate(loader, 1):
            (F.mse_loss(self.model(x), y) / self.args.update_steps).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
            if i % self.args.update_steps == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
"""
)


@pytest.mark.parametrize(("default", "severity"), [("1", "info"), ("4", "error")])
def test_what_a_parameter_is_unless_it_is_given(default, severity):
    findings = judge(unit_of(PARSER.format(default=default))).findings
    assert {f.severity.word for f in findings if f.code == "INS301"} == {severity}


KINDS = (
    HEAD
    + """
{made}
def train(task, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        if task.kind == {apex}:
            loss.backward()
        elif task.kind == AmpType.PYTORCH:
            task.scaler.scale(loss).backward()
        if task.kind == AmpType.PYTORCH:
            task.scaler.step(optimizer)
            task.scaler.update()
        else:
            optimizer.step()
"""
)


@pytest.mark.parametrize(
    "made",
    [
        "from project import AmpType",
        "import enum\nclass AmpType(enum.Enum):\n    APEX = enum.auto()\n    PYTORCH = enum.auto()",
    ],
)
def test_what_is_one_member_of_an_enumeration_is_no_other(made):
    assert "INS306" not in codes(KINDS.format(made=made, apex="AmpType.APEX"))
    assert "INS306" in codes(KINDS.format(made=made, apex="choice"))


@pytest.mark.parametrize("name", ["torch_item", "to_float", "loss_to_numpy"])
def test_functions_that_make_numbers(name):
    keep = "def {0}(x):\n    return x if isinstance(x, float) else x.cpu()\nlosses = []\n"
    loop = "for x, y in loader:\n    optimizer.zero_grad()\n    loss = F.mse_loss(model(x), y)\n"
    loop += "    loss.backward()\n    optimizer.step()\n    losses.append({0}(loss))\n"
    assert "INS601" in codes(MADE + (keep + loop).format("shown"))
    assert "INS601" not in codes(MADE + (keep + loop).format(name))


DROPPED = (
    MADE
    + """
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    for p in model.parameters():
        if p.grad is not None{test}:
            p.grad = None
    optimizer.step()
"""
)


def test_gradients_that_are_dropped_for_their_numbers():
    assert "INS102" in codes(DROPPED.format(test=""))
    assert "INS102" not in codes(DROPPED.format(test=" and not torch.isfinite(p.grad).all()"))


def test_a_clear_that_an_option_switches_off():
    update = "    F.mse_loss(model(x), y).backward()\n    optimizer.step()\n"
    loop = MADE + "for x, y in loader:\n    if not options.{0}:\n        {1}\n" + update
    assert "INS101" not in codes(loop.format("accum_grad", "optimizer.zero_grad()"))
    assert "INS101" in codes(loop.format("accum_grad", "print(x)"))


NET = """
class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.part = Part(size)
    def forward(self, x):
        return self.part(x)
class Part(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = {layer}
    def forward(self, x):
        return self.layer(x)
"""
MODES = """
{made}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for epoch in range(9):
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
"""


@pytest.mark.parametrize(
    ("net", "made", "severity"),
    [
        (NET.format(layer="torch.nn.Dropout(size)"), "model = Net(3)", "warning"),
        (NET.format(layer="torch.nn.BatchNorm1d(size)"), "model = Net(3)", "warning"),
        (NET.format(layer="library.Layer(size)"), "model = Net(3)", "info"),
        (NET.format(layer="torch.nn.Linear(size, size)"), "model = Net(3)", None),
        ("import torchvision", "model = torchvision.models.resnet18()", "warning"),
        ("", "model = given", "info"),
    ],
)
def test_train_mode_matters_as_much_as_layers_are_seen_to_notice_it(net, made, severity):
    findings = judge(unit_of(HEAD + net + MODES.format(made=made))).findings
    found = [finding.severity.word for finding in findings if finding.code == "INS604"]
    assert found == ([] if severity is None else [severity])


RATES = (
    MADE
    + """
def rates(parts):
    {made}
    for name, part in parts.items():
        kept[name] += part.log().sum()
    return kept
for x, y in loader:
    optimizer.zero_grad()
    out = rates(model(x))
    loss = out["all"]
    loss.backward()
    optimizer.step()
"""
)


LASTING = """
for x, y in loader:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    kept['all'] += loss
"""


def test_an_element_lasts_no_longer_than_what_it_is_in():
    assert "INS601" not in codes(RATES.format(made="kept = {'all': 0}"))
    assert "INS601" in codes(MADE + "kept = {'all': 0}\n" + LASTING)


TASKS = """
class Pipeline:
    def __init__(self, task):
        self.embedding, self.tagger = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        {choice}
        self.optimizer = torch.optim.AdamW(held)
    def train(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            F.mse_loss(self.tagger(self.embedding(x)), y).backward()
            self.optimizer.step()
"""


def test_what_an_optimizer_holds_may_hang_on_a_choice():
    always = "held = [*self.embedding.parameters()]"
    chosen = f"if task == 'tokenize':\n            {always}"
    chosen += "\n        else:\n            held = [*self.tagger.parameters()]"
    assert "INS502" in codes(HEAD + TASKS.format(choice=always))
    assert "INS502" not in codes(HEAD + TASKS.format(choice=chosen))


STATES = """
def sample(memory):
    return torch.tensor(memory.draw(), requires_grad=True)
def update(memory, optimizer_of):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {made}
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x + state), y).backward()
        optimizer.step()
"""


def test_data_that_gets_gradients_is_not_trained():
    assert "INS502" in codes(HEAD + STATES.format(made="torch.zeros(2, requires_grad=True)"))
    assert "INS502" not in codes(HEAD + STATES.format(made="sample(memory)"))


TURN = (
    HEAD
    + """
first = torch.optim.Adam(model.encoder.parameters())
for epoch in range(9):
    first.zero_grad()
    for i, x in enumerate(loader):
        {clear}
        F.mse_loss(model(x), x).backward()
        if i % (options.steps + 1) == 0:
            first.step()
            {after}
"""
)


def test_turns_are_no_windows():
    assert "INS204" not in codes(TURN.format(clear="first.zero_grad()", after="pass"))
    assert "INS204" in codes(TURN.format(clear="pass", after="first.zero_grad()"))


@pytest.mark.parametrize(("after", "severity"), [("break", "warning"), ("print(x)", "error")])
def test_what_makes_one_update_may_be_cleared_by_who_calls_it_again(after, severity):
    flow = "class Flow:\n    def train(self):\n        for x, y in self.loader:\n"
    flow += "            F.mse_loss(self.model(x), y).backward()\n"
    flow += f"            self.optimizer.step()\n            {after}\n"
    findings = judge(unit_of(HEAD + flow)).findings
    assert {f.severity.word for f in findings if f.code == "INS101"} == {severity}


LAST = (
    HEAD
    + """
def run(data, train={train}, test=100):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(train + test):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            if epoch < train + test - 1:
                loss.backward()
            {steps}
run(data, 1, 1)
"""
)


def test_the_last_epoch_only_looks():
    twice = "optimizer.step(); print(x); optimizer.step()"
    assert "INS104" not in codes(LAST.format(train=9, steps="optimizer.step()"))
    assert "INS104" in codes(LAST.format(train=9, steps=twice))


WRAPPED = """
from library import make
class Decoder(torch.nn.Module):
    pass
class Parallel(Decoder):
    def __init__(self, decoder):
        super().__init__()
        self.whole = torch.nn.parallel.DataParallel(decoder)
    def forward(self, x):
        return self.whole.module.forward(x)
def main(args):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    if args.several:
        model = Parallel({given})
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
"""


def test_a_wrapper_has_the_parameters_of_what_it_is_given():
    assert "INS503" not in codes(HEAD + WRAPPED.format(given="model"))
    assert "INS503" in codes(HEAD + WRAPPED.format(given="torch.nn.Linear(2, 2)"))


LAYERS = """
def fit(lens, net, loader):
    optimizer = torch.optim.SGD(lens.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        {name} = net(x)
        for at, h in enumerate({name}):
            F.mse_loss(lens(at, h), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize("name", ["states", "hidden", "activations", "feature_maps"])
def test_what_the_layers_of_a_net_give_are_no_parts_of_a_batch(name):
    assert "INS201" not in codes(HEAD + LAYERS.format(name=name))
    assert "INS201" in codes(HEAD + LAYERS.format(name="parts"))
