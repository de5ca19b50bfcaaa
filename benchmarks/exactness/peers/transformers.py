"""The Hugging Face Trainer, with the three kinds of model that it meets."""

import tempfile
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from benchmarks.exactness.peers import Answers, NotSupportedError
from benchmarks.exactness.scenarios import SAMPLES, Kind, Scenario


class Plain(nn.Module):
    """A model that returns the mean loss of its batch."""

    def __init__(self, scenario: Scenario, model: nn.Module) -> None:
        super().__init__()
        self.scenario, self.model = scenario, model

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": self.scenario.loss(self.model(inputs), labels)}


class UsesItems(Plain):
    """What the library's own models do: sum, divided by the count of the whole window."""

    def forward(
        self,
        inputs: Tensor,
        labels: Tensor,
        num_items_in_batch: Tensor | None = None,
        **kwargs: object,
    ) -> dict[str, Tensor]:
        if num_items_in_batch is None:
            return super().forward(inputs, labels)
        loss = self.scenario.loss
        sums = loss.sums(self.model(inputs), labels)
        total = torch.stack([sums[term.name] * term.weight for term in loss.terms]).sum()
        return {"loss": total / num_items_in_batch}


class Swallows(Plain):
    """A model whose forward takes `**kwargs` for another reason and never looks into them."""

    def forward(self, inputs: Tensor, labels: Tensor, **kwargs: object) -> dict[str, Tensor]:
        return super().forward(inputs, labels)


class LeaveFirstEpoch(TrainerCallback):  # type: ignore[misc]
    """`control.should_epoch_stop`: the Trainer's way to `break`."""

    def __init__(self, after: int) -> None:
        self.after, self.seen = after, 0

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._count(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._count(control)

    def _count(self, control: Any) -> None:
        self.seen += 1
        control.should_epoch_stop = self.seen == self.after


def epoch(wrap: type[Plain], scenario: Scenario, model: nn.Module) -> nn.Module:
    """One epoch; gradients are clipped only where the scenario clips (the default clips at 1)."""
    _fit(wrap, scenario, model, epochs=1, callbacks=[])
    return model


def leave_early(wrap: type[Plain], scenario: Scenario, model: nn.Module) -> nn.Module:
    """Two epochs, the first one cut short by a callback."""
    _fit(wrap, scenario, model, epochs=2, callbacks=[LeaveFirstEpoch(scenario.interrupted_after)])
    return model


def unsupported(scenario: Scenario, model: nn.Module) -> nn.Module:
    """One optimizer and one loss; checkpoints are written between updates only."""
    raise NotSupportedError


def _fit(
    wrap: type[Plain], scenario: Scenario, model: nn.Module, *, epochs: int, callbacks: list[Any]
) -> None:
    inputs, targets = scenario.loader().dataset[:]
    samples = [{"inputs": x, "labels": y} for x, y in zip(inputs, targets, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            num_train_epochs=epochs,
            per_device_train_batch_size=SAMPLES,
            gradient_accumulation_steps=scenario.window,
            max_grad_norm=scenario.clip_norm or 0.0,
            lr_scheduler_type="constant",
            train_sampling_strategy="sequential",
            remove_unused_columns=False,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        (optimizer,) = scenario.optimizers(model)
        trainer = Trainer(
            model=wrap(scenario, model),
            args=arguments,
            train_dataset=samples,
            optimizers=(optimizer, None),
            callbacks=callbacks,
        )
        trainer.train()


def _row(wrap: type[Plain]) -> Answers:
    return {
        Kind.EPOCH: partial(epoch, wrap),
        Kind.BREAK: partial(leave_early, wrap),
        Kind.RESUME: unsupported,
        Kind.TWO_OPTIMIZERS: unsupported,
        Kind.ADVERSARIAL: unsupported,
        Kind.SCALED: unsupported,
    }


ROWS: tuple[Answers, ...] = (_row(Plain), _row(UsesItems), _row(Swallows))
