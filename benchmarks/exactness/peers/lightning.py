"""Lightning's Trainer with `accumulate_grad_batches`; manual optimization for two optimizers."""

import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.exactness.peers import Answers
from benchmarks.exactness.scenarios import Kind, Scenario

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
# Its advice on worker counts, log intervals and checkpoints has no bearing on four-sample batches.
warnings.filterwarnings("ignore", module=r"lightning\..*")


class Automatic(lightning.LightningModule):  # type: ignore[misc]
    """The module of the quick start: a loss, an optimizer, nothing about windows."""

    def __init__(self, scenario: Scenario, model: nn.Module) -> None:
        super().__init__()
        self.scenario, self.model = scenario, model
        self.leave_first_epoch_after: int | None = None

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor | None:
        inputs, targets = batch
        return self.scenario.loss(self.model(inputs), targets)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return self.scenario.optimizers(self.model)

    def on_train_batch_start(self, batch: list[Tensor], batch_idx: int) -> int | None:
        """Returning -1 skips the rest of the epoch: the Trainer's way to `break`."""
        leave = self.current_epoch == 0 and batch_idx == self.leave_first_epoch_after
        return -1 if leave else None


class Manual(Automatic):
    """Manual optimization with accumulation, as in the optimization page."""

    automatic_optimization = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        inputs, targets = batch
        loss = self.scenario.loss(self.model(inputs), targets) / self.scenario.window
        self.manual_backward(loss)
        if (batch_idx + 1) % self.scenario.window == 0:
            for optimizer in self.optimizers():
                optimizer.step()
                optimizer.zero_grad()


class SaveAfter(Callback):  # type: ignore[misc]
    """A checkpoint in the middle of a window."""

    def __init__(self, batches: int, path: Path) -> None:
        self.batches, self.path = batches, path

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx + 1 == self.batches:
            trainer.save_checkpoint(self.path)


class ResumableLoader(DataLoader[Any]):
    """A loader with the `state_dict` that the Trainer asks for, so that no batch repeats."""

    delivered = 0
    skipped = 0

    def state_dict(self) -> dict[str, int]:
        return {"delivered": self.delivered}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skipped = state["delivered"]

    def __iter__(self) -> Any:
        self.delivered = 0
        for batch in super().__iter__():
            self.delivered += 1
            if self.delivered > self.skipped:
                yield batch
        self.skipped = 0


def automatic(scenario: Scenario, model: nn.Module) -> nn.Module:
    """One optimizer: the Trainer owns the window."""
    trainer = _trainer(scenario, clip=True, accumulate=True)
    trainer.fit(Automatic(scenario, model), scenario.loader())
    return model


def manual(scenario: Scenario, model: nn.Module) -> nn.Module:
    """Two optimizers: the Trainer hands the window back to the user."""
    _trainer(scenario).fit(Manual(scenario, model), scenario.loader())
    return model


def resume(scenario: Scenario, model: nn.Module) -> nn.Module:
    """The checkpoint of a first run, given to a second one as `ckpt_path`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "middle.ckpt"
        first = _trainer(
            scenario, accumulate=True, callbacks=[SaveAfter(scenario.interrupted_after, path)]
        )
        first.fit(Automatic(scenario, model), _resumable(scenario))
        resumed = scenario.fresh_model()
        second = _trainer(scenario, accumulate=True)
        second.fit(
            Automatic(scenario, resumed),
            _resumable(scenario),
            ckpt_path=path,
            # The file was written above; it holds no more than the state_dicts of this scenario.
            weights_only=False,
        )
    return resumed


def leave_early(scenario: Scenario, model: nn.Module) -> nn.Module:
    """Two epochs, the first one cut short by the hook."""
    module = Automatic(scenario, model)
    module.leave_first_epoch_after = scenario.interrupted_after
    _trainer(scenario, accumulate=True, max_epochs=2).fit(module, scenario.loader())
    return model


def _resumable(scenario: Scenario) -> ResumableLoader:
    plain = scenario.loader()
    return ResumableLoader(plain.dataset, batch_size=plain.batch_size)


def _trainer(
    scenario: Scenario, *, clip: bool = False, accumulate: bool = False, **options: Any
) -> Any:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "precision": "64-true",
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    if clip:
        settings["gradient_clip_val"] = scenario.clip_norm
    if accumulate:
        settings["accumulate_grad_batches"] = scenario.window
    return lightning.Trainer(**settings | options)


ROWS: tuple[Answers, ...] = (
    {
        Kind.EPOCH: automatic,
        Kind.TWO_OPTIMIZERS: manual,
        Kind.RESUME: resume,
        Kind.BREAK: leave_early,
    },
)
