"""Watch on the Trainer of Hugging Face."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.peers.kit import watched

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()


class Undivided(transformers.Trainer):
    def training_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        model.train()
        loss = model(**inputs).loss
        self.accelerator.backward(loss)
        return loss.detach()


def rows() -> list[dict[str, Tensor]]:
    drawn = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 32, (24, 8), generator=drawn)
    return [{"input_ids": row, "labels": row.clone()} for row in tokens]


def train(folder: Any, kind: Any = transformers.Trainer, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2)
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        num_train_epochs=3,
        per_device_train_batch_size=2,
        disable_tqdm=True,
        **settings,
    )
    trainer = kind(model=model, args=arguments, train_dataset=rows(), eval_dataset=rows()[:4])
    trainer.train()
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 4, "max_grad_norm": 1.0},
        {"gradient_accumulation_steps": 5, "eval_strategy": "epoch"},  # the last window is short
        {"gradient_accumulation_steps": 4, "label_smoothing_factor": 0.1},
        {"bf16": True, "gradient_checkpointing": True},
    ],
)
def test_the_trainer_is_right(tmp_path, settings):
    assert watched(lambda: train(tmp_path, **settings)) == []


def test_a_step_that_does_not_divide(tmp_path):
    found = watched(lambda: train(tmp_path, Undivided, gradient_accumulation_steps=4))
    assert found == [("INS201", "self.accelerator.backward(loss)")]
