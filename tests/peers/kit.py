"""What the tests of watched frameworks share: a small job, and what must hold for every one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset

import instep


def loader(items: int = 16, batch_size: int = 2) -> DataLoader:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(items, 8, generator=drawn)
    y = torch.randint(0, 3, (items,), generator=drawn)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def hooked() -> list[object]:
    """Return everything that the watcher replaces or hooks, as it is now."""
    return [
        torch.autograd.backward,
        torch.nn.utils.clip_grad_norm_,
        clip_grad.clip_grad_norm_,
        torch.optim.Optimizer.zero_grad,
        torch.optim.Optimizer.add_param_group,
        nn.Module.train,
        nn.Module.zero_grad,
        nn.Module.__setattr__,
        DataLoader.__iter__,
        torch.amp.GradScaler.step,
        torch.optim.lr_scheduler.StepLR.step,
        dict(optimizers._global_optimizer_pre_hooks),
        dict(optimizers._global_optimizer_post_hooks),
    ]


def hooks(model: nn.Module) -> list[int]:
    """Count the hooks of a model's parts and parameters, those of frameworks included."""
    parts = [len(module._forward_pre_hooks) for module in model.modules()]
    return parts + [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]


def watched(job: Callable[[], nn.Module]) -> list[tuple[str, str]]:
    """Run a job twice, once under watch, and return what was found: the code and the line's text.

    Both must end with the same bits, and nothing may stay behind.
    """
    unwatched = job()
    alone = [parameter.detach().clone() for parameter in unwatched.parameters()]
    before = hooked()
    with instep.watch() as watch:
        model = job()
    assert watch.seam.faults == []
    assert hooked() == before
    together = list(model.parameters())
    assert len(alone) == len(together)
    assert all(map(torch.equal, alone, together))
    assert hooks(model) == hooks(unwatched)
    assert sum(watch.series.updates.values()) > 0
    return [(finding.code, _line(finding.place)) for finding in watch.findings]


def _line(place: instep.trace.Place) -> str:
    return Path(place.path).read_text().splitlines()[place.line - 1].strip()
