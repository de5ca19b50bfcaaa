"""Small things for loops to train: networks, loaders and what else a loop takes for granted."""

from __future__ import annotations

import gc
from types import ModuleType

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 8
BATCHES = 13
"""Of a loader: in a window of 2, 3, 4, 5, 6 or 8 of them something is left over."""
SAMPLES = 4
"""Of a batch."""


class Enough(Exception):  # it is no error
    """The loop has shown what it does."""


class Net(nn.Module):
    """Eight numbers in, eight numbers out; anything else keeps its shape."""

    def __init__(self, heads=1):
        super().__init__()
        self.weights = nn.ParameterList(0.3 * torch.randn(WIDTH, WIDTH) for _ in range(heads))
        self.biases = nn.ParameterList(torch.zeros(WIDTH) for _ in range(heads))
        self.idle = nn.Dropout()  # never called: a model for which the mode matters

    def forward(self, x, *others):
        del others
        out = [self.head(x, w, b) for w, b in zip(self.weights, self.biases, strict=True)]
        return out[0] if len(out) == 1 else tuple(out)

    def head(self, x, weight, bias):
        if not x.is_floating_point():
            return weight[x % WIDTH] + bias
        if x.shape[-1] == WIDTH:
            return nn.functional.linear(x, weight, bias)
        return x * weight.mean() + bias.mean()


class Score(Net):
    """One number for each sample."""

    def forward(self, x, *others):
        return super().forward(x, *others).flatten(1).mean(1)


class Judged(Net):
    """A network that computes its own loss, as those of Hugging Face do."""

    def forward(self, x, labels, return_dict=True):
        logits = super().forward(x)
        loss = nn.functional.cross_entropy(logits, labels)
        return {"loss": loss} if return_dict else (loss, logits)


class Detector(Net):
    """A network that gives a dictionary of losses."""

    def forward(self, x, labels):
        logits = super().forward(x)
        loss = nn.functional.cross_entropy(logits, labels)
        return {"classes": loss, "boxes": logits.pow(2).mean()}


class Recurrent(Net):
    """A network with a state."""

    def forward(self, x, state=None):
        out = super().forward(x)
        return out + (0 if state is None else state), out.mean()


class Actor(Net):
    """A network that says how likely an action was."""

    def log_prob(self, x, action):
        return (self(x) * action).mean(-1)


class Pictured(nn.Module):
    """What `resnet18` is to a loop that replaces its last layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(WIDTH, 512)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc(self.stem(x))


class Samples(Dataset):
    """Samples of one or several parts, each made by a function without arguments."""

    def __init__(self, parts, size):
        torch.manual_seed(0)
        self.rows = [tuple(part() for part in parts) for _ in range(size)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        row = self.rows[at]
        return row[0] if len(row) == 1 else row


def loader(*parts, size=BATCHES * SAMPLES, batch=SAMPLES):
    """Return a loader of real batches."""
    return DataLoader(Samples(parts or (numbers(), classes), size), batch_size=batch)


def endless(batches):
    """Give batches for ever, epoch after epoch."""
    while True:
        yield from batches


def numbers(*shape):
    return lambda: torch.randn(*(shape or (WIDTH,)))


def classes():
    return torch.randint(1, WIDTH, ())


def ids(*shape):
    return lambda: torch.randint(1, WIDTH, shape)


class Padded:
    """Tokens, some of which are padding: as many as chance wants."""

    def __init__(self, length, padding):
        self.length, self.padding = length, padding

    def __call__(self):
        row = torch.randint(1, WIDTH, (self.length,))
        row[torch.randint(1, self.length + 1, ()) :] = self.padding
        return row


class World:
    """An environment of five steps to an episode."""

    def reset(self):
        self.at = 0
        return torch.randn(WIDTH)

    def step(self, action):
        del action
        self.at += 1
        return torch.randn(WIDTH), 1.0, self.at == 5, {}


class Anything:
    """Takes every call and gives itself."""

    def __call__(self, *args, **kwargs):
        del args, kwargs
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class NativeScaler:
    """The one of timm, as far as loops go."""

    def __init__(self):
        self._scaler = torch.amp.GradScaler("cpu")

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, create_graph=False):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        if clip_grad:
            self._scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parameters, clip_grad)
        self._scaler.step(optimizer)
        self._scaler.update()


class SAM(torch.optim.Optimizer):
    """The optimizer that climbs before it descends, as it is copied from project to project."""

    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, {"rho": rho, **kwargs})
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["climb"] = climb = 0.05 * p.grad
                p.add_(climb)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["climb"])
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()


def tqdm(batches):
    """Show nothing."""
    return batches


def zero_all_grads():
    """Clear whatever there is."""
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.optim.Optimizer):
            thing.zero_grad()


def package(name, **members):
    """Return a stand-in of a package."""
    made = ModuleType(name)
    vars(made).update(members)
    return made


def packages():
    """Return stand-ins of packages that loops import and that nothing depends on here."""
    models = package("torchvision.models", resnet18=lambda weights=None: Pictured())
    return {
        "torchvision": package("torchvision", models=models),
        "tqdm": package("tqdm", tqdm=tqdm),
        "timm.utils": package("timm.utils", NativeScaler=NativeScaler),
        "sam": package("sam", SAM=SAM),
        "training_tools": package("training_tools", zero_all_grads=zero_all_grads),
    }
