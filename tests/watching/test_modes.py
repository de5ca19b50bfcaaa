"""Which models do something else in eval mode, seen without running them."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from instep.watching.modes import notices_mode
from tests.watching.jobs import found, run


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


class Named(Base):
    """Its parts are asked themselves, whatever they are called; training is only spoken of."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.dropout = part

    def forward(self, x):
        return self.dropout(self.layer(x)).relu()


class Asking(Base):
    def forward(self, x):
        return x if self.training else super().forward(x)


class Inner(Base):
    def forward(self, x):
        return self._mixed(x)

    def _mixed(self, x):
        return F.dropout(self.layer(x), 0.1, not torch.is_inference_mode_enabled())


class ByKeyword(Base):
    def forward(self, x):
        return some_function(x, training=True)


class Generating(Base):
    def forward(self, x):
        return sum(y if self.training else -y for y in x)


class ByText(Base):
    def forward(self, x):
        return x if getattr(self, "training") else -x  # noqa: B009


class Mixin:
    def act(self, x):
        return x if self.training else -x


class Mixed(Base, Mixin):
    def forward(self, x):
        return self.act(x)


class Elsewhere(Base):
    def forward(self, x):
        return helped(self, x)


class Wrapped(Base):
    @torch.no_grad()
    def forward(self, x):
        return x if self.training else -x


class Property(Base):
    @functools.cached_property
    def factor(self):
        return 1 if self.training else 2


class Quiet(Base):
    count = 3
    act = staticmethod(torch.relu)

    @property
    def width(self):
        return self.layer.weight.shape[0]

    @classmethod
    def make(cls):
        return cls()


class Louder(nn.Dropout):
    pass


def helped(module, x):
    return x if module.training else -x


def some_function(x, training):
    return x if training else -x


def looking(module, args):
    return args if module.training else None


def hooked(hook):
    made = Base()
    made.layer.register_forward_pre_hook(hook)
    return made


def patched():
    made = Base()
    made.forward = lambda x: F.dropout(made.layer(x))
    return made


def compiled_in_place():
    made = Base()
    made.compile(backend="eager")
    return made


NOTICES = {
    "dropout": lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)),
    "dropout of one's own": lambda: Louder(0.5),
    "alpha dropout": lambda: nn.AlphaDropout(0.1),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "lazy batch norm": nn.LazyBatchNorm1d,
    "over ranks": lambda: nn.SyncBatchNorm(4, track_running_stats=False),
    "instance norm that remembers": lambda: nn.InstanceNorm2d(4, track_running_stats=True),
    "rrelu": nn.RReLU,
    "lstm": lambda: nn.LSTM(4, 4, num_layers=2, dropout=0.1),
    "attention": lambda: nn.MultiheadAttention(4, 2, dropout=0.1),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8),
    "decoder": lambda: nn.TransformerDecoderLayer(4, 2, 8),
    "asks": Asking,
    "asks in another function": Inner,
    "says it by keyword": ByKeyword,
    "in a generator": Generating,
    "by its text": ByText,
    "in a mixin": Mixed,
    "in a function": Elsewhere,
    "behind a decorator": Wrapped,
    "in a property": Property,
    "part that notices": lambda: Named(nn.Dropout(0.5)),
    "hook": lambda: hooked(looking),
    "hook that is unreadable": lambda: hooked(functools.partial(looking)),
    "spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "spectral norm, newer": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
    "another forward": patched,
    "compiled": lambda: torch.compile(Base(), backend="eager"),
    "compiled in place": compiled_in_place,
    "scripted": lambda: torch.jit.script(nn.Linear(2, 2)),
}
DOES_NOT = {
    "mlp": lambda: nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)),
    "layer norm": lambda: nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4)),
    "dropout of nothing": lambda: nn.Dropout(0.0),
    "batch norm of the batch": lambda: nn.BatchNorm1d(4, track_running_stats=False),
    "instance norm": lambda: nn.InstanceNorm2d(4),
    "lstm": lambda: nn.LSTM(4, 4, num_layers=2),
    "attention": lambda: nn.MultiheadAttention(4, 2),
    "transformer": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), num_layers=2
    ),
    "decoder": lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0),
    "embedding": lambda: nn.Sequential(nn.Embedding(4, 4), nn.Conv1d(4, 4, 1)),
    "one's own": Base,
    "with all kinds of members": Quiet,
    "part that is called dropout": lambda: Named(nn.Identity()),
    "hook": lambda: hooked(lambda module, args: None),
    "lazy": lambda: nn.LazyLinear(4),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NOTICES)
def test_models_that_notice(name):
    assert notices_mode(NOTICES[name]())


@pytest.mark.parametrize("name", DOES_NOT)
def test_models_that_do_not(name):
    assert not notices_mode(DOES_NOT[name]())


LOOP = """
model = torch.nn.Sequential(torch.nn.Linear(6, 6), {layer}, torch.nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for update in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(4, 6)), torch.randint(0, 3, (4,))).backward()
        optimizer.step()
    model.eval()
"""


def test_only_who_notices_loses_anything():
    assert found(run(LOOP.format(layer="torch.nn.LayerNorm(6)"))) == []
    assert found(run(LOOP.format(layer="torch.nn.Dropout(0.0)"))) == []
    assert found(run(LOOP.format(layer="torch.nn.Dropout(0.1)"))) == [("INS604", 9)]
    assert found(run(LOOP.format(layer="torch.nn.BatchNorm1d(6)"))) == [("INS604", 9)]
