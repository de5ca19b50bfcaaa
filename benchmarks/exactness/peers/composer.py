"""Composer, which is given whole batches and splits them itself."""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import logging
import sys
import types
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.exactness.peers import Answers, NotSupportedError
from benchmarks.exactness.scenarios import SAMPLES, Kind, Scenario

TORCHVISION = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.models.resnet",
    "torchvision.ops",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.utils",
)


class StandIn(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: list[str] = []  # noqa: RUF012  (a package's attribute, not a class default)

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextlib.contextmanager
def without_torchvision() -> Iterator[None]:
    """Let Composer import where torchvision is missing.

    Composer's image algorithms import torchvision when Composer is imported. Nothing here uses
    them, and torchvision has no build for every torch; the names are stood in for during the import
    and gone afterwards, so that no other package finds them.
    """
    if importlib.util.find_spec("torchvision") is not None:
        yield
        return
    for name in TORCHVISION:
        module = StandIn(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in TORCHVISION:
            del sys.modules[name]


# They look for torchvision themselves, and must do so before the stand-in exists.
for looker in ("torchmetrics", "transformers"):
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(looker)

with without_torchvision(), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from composer import ComposerModel, DataSpec, Trainer
    from composer.algorithms import GradientClipping

logging.getLogger("composer").setLevel(logging.ERROR)


class Wrapped(ComposerModel):  # type: ignore[misc]
    """The two methods that Composer asks for."""

    def __init__(self, scenario: Scenario, model: nn.Module) -> None:
        super().__init__()
        self.scenario, self.model = scenario, model

    def forward(self, batch: list[Tensor]) -> Tensor:
        outputs: Tensor = self.model(batch[0])
        return outputs

    def loss(self, outputs: Tensor, batch: list[Tensor]) -> Tensor:
        return self.scenario.loss(outputs, batch[1])


def epoch(scenario: Scenario, model: nn.Module, *, by_tokens: bool) -> nn.Module:
    """A batch is a window; `device_train_microbatch_size` splits it."""
    loss = scenario.loss

    def tokens(batch: list[Tensor]) -> int:
        return sum(int(count) for count in loss.counts(batch[1]).values())

    clip = scenario.clip_norm
    trainer = Trainer(
        model=Wrapped(scenario, model),
        train_dataloader=DataSpec(
            scenario.loader(batch_size=SAMPLES * scenario.window), get_num_tokens_in_batch=tokens
        ),
        max_duration="1ep",
        optimizers=scenario.optimizers(model),
        algorithms=[] if clip is None else [GradientClipping("norm", clipping_threshold=clip)],
        device_train_microbatch_size=SAMPLES,
        accumulate_train_batch_on_tokens=by_tokens,
        device="cpu",
        precision="fp32",
        progress_bar=False,
    )
    # Composer adds the loss to a zero of the default dtype; in float32 that alone would cost 4e-8.
    torch.set_default_dtype(torch.float64)
    try:
        trainer.fit()
    finally:
        torch.set_default_dtype(torch.float32)
        trainer.close()
    return model


def unsupported(scenario: Scenario, model: nn.Module) -> nn.Module:
    """The Trainer accepts one optimizer; a batch is a window, so nothing is saved inside one."""
    raise NotSupportedError


def _row(*, by_tokens: bool) -> Answers:
    loop: Any = partial(epoch, by_tokens=by_tokens)
    return {
        Kind.EPOCH: loop,
        Kind.RESUME: unsupported,
        Kind.TWO_OPTIMIZERS: unsupported,
        Kind.ADVERSARIAL: unsupported,
        Kind.SCALED: unsupported,
    }


ROWS: tuple[Answers, ...] = (_row(by_tokens=False), _row(by_tokens=True))
