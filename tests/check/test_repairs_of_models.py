"""What real code taught about models: what optimizers hold, what replaces what, lost modes."""

from __future__ import annotations

from instep.check.judge import judge
from tests.check.repairs import HEAD, MADE, NEVER, codes, found, unit_of


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


def test_a_layer_that_a_class_only_speaks_of_is_none_of_its_own():
    text = (
        HEAD
        + """\
class Distance(torch.nn.Module):
    \'\'\'Compare, as after Linear(1, 8).

    See also: {said}
    \'\'\'
    def __init__(self):
        super().__init__()
        {made}
    def forward(self, x, y):
        return (x - y).square().mean()


loss_fn = Distance()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss_fn(model(x), y).backward()
    optimizer.step()
"""
    )
    silent = "# self.scale = torch.nn.Parameter(torch.ones(8))\n        self.kept = 1"
    assert codes(text.format(said="Embedding(8)", made=silent)) == set()
    has = "self.scale = torch.nn.Parameter(torch.ones(8))"
    assert codes(text.format(said="nothing", made=has)) == {"INS502"}


def test_what_an_optimizer_holds_must_be_known_for_an_error():
    def severities(made):
        judgement = judge(unit_of(HEAD + made + NEVER))
        return [finding.severity.word for finding in judgement.findings]

    assert severities("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n") == ["error"]
    assert severities("optimizer = torch.optim.SGD(chosen, lr=0.1)\n") == ["warning"]


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


def test_parameters_that_are_cut_off_are_frozen():
    used = HEAD + "encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)\n{frozen}\n"
    used += "optimizer = torch.optim.SGD(head.parameters(), lr=0.1)\n"
    used += "for x, y in loader:\n    optimizer.zero_grad()\n"
    used += "    F.mse_loss(head(encoder(x)), y).backward()\n    optimizer.step()\n"
    assert codes(used.format(frozen="pass")) == {"INS502"}
    assert codes(used.format(frozen="for p in encoder.parameters(): p.detach_()")) == set()


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


def test_a_layer_that_is_replaced_by_its_number_is_replaced():
    text = (
        HEAD
        + """\
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{renewed}
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
    )
    assert codes(text.format(renewed="model[1] = torch.nn.Linear(16, 5)")) == {"INS503"}
    again = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    for renewed in (
        f"model[1] = torch.nn.Linear(16, 5)\n{again}",
        (
            "model[1] = torch.nn.Linear(16, 5)\n"
            "optimizer.add_param_group({'params': model[1].parameters()})"
        ),
        "model[1] = model[1].to('cpu')",
        "model[1] = torch.nn.ReLU()",
    ):
        assert codes(text.format(renewed=renewed)) == set(), renewed


def test_models_in_a_list_that_are_made_one_after_the_other_are_not_replaced():
    text = (
        HEAD
        + """\
models = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])
for i in range(3):
    models[i] = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(models[i].parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(models[i](x), y).backward()
        optimizer.step()
"""
    )
    assert codes(text) == set()


def test_a_filter_whose_numbers_are_written_may_be_meant_to_stay():
    text = (
        HEAD
        + """\
class Edges(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 3, bias=False)
        self.conv.weight = torch.nn.Parameter({filter})
    def forward(self, x, y):
        return (self.conv(x) - self.conv(y)).abs().mean()
model = torch.nn.Conv2d(1, 1, 3)
edges = Edges()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = edges(model(x), y)
    loss.backward()
    optimizer.step()
"""
    )
    sobel = "torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])[None, None]"
    assert "INS502" not in codes(text.replace("{filter}", sobel))
    assert "INS502" in codes(text.replace("{filter}", "torch.randn(1, 1, 3, 3)"))
