"""What real code taught about gradients that are cleared, or come from where nobody looks."""

from __future__ import annotations

import pytest

from instep.check.judge import judge
from tests.check.execute.run import events
from tests.check.repairs import HEAD, MADE, NEVER, codes, severities, unit_of


def test_unknown_ways_to_clear_are_not_taken_for_nothing():
    patched = "torch.optim.SGD.step = my_step\n"
    assert codes(MADE + patched + NEVER) == set()
    forms = "from functools import singledispatch\n@singledispatch\ndef after(o):\n    pass\n"
    assert codes(MADE + forms + NEVER + "    after(optimizer)\n") == set()
    hook = "class T:\n    def on_step(self):\n        raise NotImplementedError\nt = T()\n"
    assert codes(MADE + hook + NEVER + "    t.on_step()\n") == set()


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


@pytest.mark.parametrize("clear", ["setattr(p, 'grad', None)", "p.grad.mul_(0)"])
def test_gradients_that_are_cleared_oddly(clear):
    loop = MADE + NEVER + f"    for p in model.parameters(): {clear}\n"
    assert "INS101" not in codes(loop)


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
