"""Watch on the Trainer of Lightning: automatic and manual optimization."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.peers.kit import loader, loss_of, net, watched

lightning = pytest.importorskip("lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Automatic(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def training_step(self, batch: Any, index: int) -> Tensor:
        return loss_of(self.net, *batch)

    def validation_step(self, batch: Any, index: int) -> None:
        loss_of(self.net, *batch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Manual(Automatic):
    clears, size = True, 1

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        optimizer = self.optimizers()
        loss = loss_of(self.net, *batch)
        self.manual_backward(loss)
        if (index + 1) % self.size == 0:
            self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
            optimizer.step()
            self.lr_schedulers().step()
            if self.clears:
                optimizer.zero_grad()


class Uncleared(Manual):
    clears = False


class Undivided(Manual):
    size = 4


class Hasty(Manual):
    def training_step(self, batch: Any, index: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(loss_of(self.net, *batch) / 4)
        self.lr_schedulers().step()  # at every micro-batch
        if (index + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def fit(kind: type[Automatic], **settings: Any) -> nn.Module:
    torch.manual_seed(1)
    model = kind()
    trainer = lightning.Trainer(
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        **settings,
    )
    trainer.fit(model, loader(), loader())
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"accumulate_grad_batches": 4, "gradient_clip_val": 1.0},
        {"accumulate_grad_batches": 3},  # the last window of an epoch is short
        {"precision": "bf16-mixed"},
        {"precision": "16-mixed", "accumulate_grad_batches": 2},
    ],
)
def test_automatic_optimization_is_right(settings):
    assert watched(lambda: fit(Automatic, **settings)) == []


def test_manual_optimization_is_right():
    assert watched(lambda: fit(Manual)) == []


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        (Uncleared, "INS101", "self.manual_backward(loss)"),
        (Undivided, "INS201", "self.manual_backward(loss)"),
        (Hasty, "INS402", "self.lr_schedulers().step()  # at every micro-batch"),
    ],
)
def test_manual_optimization_that_is_wrong(kind, code, line):
    assert watched(lambda: fit(kind)) == [(code, line)]
