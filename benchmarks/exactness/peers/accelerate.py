"""Accelerate: `prepare`, `accumulate`, `backward`, and step as if there were no accumulation."""

import tempfile
from collections.abc import Iterable
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn

from benchmarks.exactness.losses import adversarial_losses
from benchmarks.exactness.peers import Answers, NotSupportedError
from benchmarks.exactness.scenarios import Kind, Scenario


def epoch(scenario: Scenario, model: nn.Module) -> nn.Module:
    """The gradient accumulation guide; several optimizers are prepared and stepped together."""
    accelerator = _accelerator(scenario)
    optimizers = scenario.optimizers(model)
    model, loader, *optimizers = accelerator.prepare(model, scenario.loader(), *optimizers)
    _batches(scenario, accelerator, model, optimizers, loader)
    return model


def resume(scenario: Scenario, model: nn.Module) -> nn.Module:
    """`save_state`, a new process's objects, `load_state`, `skip_first_batches`."""
    with tempfile.TemporaryDirectory() as folder:
        accelerator = _accelerator(scenario)
        model, loader, optimizer = accelerator.prepare(
            model, scenario.loader(), *scenario.optimizers(model)
        )
        _batches(scenario, accelerator, model, [optimizer], loader, stop=scenario.interrupted_after)
        accelerator.save_state(folder)

        accelerator = _accelerator(scenario)
        resumed = scenario.fresh_model()
        resumed, loader, optimizer = accelerator.prepare(
            resumed, scenario.loader(), *scenario.optimizers(resumed)
        )
        accelerator.load_state(folder)
    assert isinstance(resumed, nn.Module)
    rest = accelerator.skip_first_batches(loader, scenario.interrupted_after)
    _batches(scenario, accelerator, resumed, [optimizer], rest)
    return resumed


def leave_early(scenario: Scenario, model: nn.Module) -> nn.Module:
    """`break` inside the first epoch, then the same loop again."""
    accelerator = _accelerator(scenario)
    model, loader, optimizer = accelerator.prepare(
        model, scenario.loader(), *scenario.optimizers(model)
    )
    _batches(scenario, accelerator, model, [optimizer], loader, stop=scenario.interrupted_after)
    _batches(scenario, accelerator, model, [optimizer], loader)
    return model


def adversarial(scenario: Scenario, model: nn.Module) -> nn.Module:
    """One `accumulate()` block per model. There is one accumulation number for all of them."""
    sizes = {size for _, size in scenario.sizes}
    if len(sizes) > 1:
        raise NotSupportedError("one gradient_accumulation_steps for all optimizers")
    assert isinstance(model, nn.ModuleDict)
    accelerator = _accelerator(scenario)
    if scenario.kind is Kind.SCALED:
        # mixed_precision="fp16" wants an accelerator device and makes this very scaler there.
        accelerator.scaler = torch.amp.GradScaler(
            "cpu", init_scale=scenario.init_scale, growth_interval=scenario.growth_interval
        )
    names = [name for name, _ in scenario.sizes]
    loader, *prepared = accelerator.prepare(scenario.loader(), *scenario.optimizers(model))
    optimizers = dict(zip(names, prepared, strict=True))
    if scenario.kind is Kind.SCALED:
        _together(accelerator, model, optimizers, loader)
    else:
        _in_two_blocks(accelerator, model, optimizers, loader)
    return model


def _accelerator(scenario: Scenario) -> Any:
    # Its states are process-wide singletons: without this one scenario would leak into the next.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    return Accelerator(gradient_accumulation_steps=scenario.window, cpu=True)


def _batches(
    scenario: Scenario,
    accelerator: Any,
    model: nn.Module,
    optimizers: list[Any],
    loader: Iterable[Any],
    *,
    stop: int | None = None,
) -> None:
    for index, (inputs, targets) in enumerate(loader):
        if index == stop:
            break
        with accelerator.accumulate(model):
            accelerator.backward(scenario.loss(model(inputs), targets))
            if accelerator.sync_gradients and scenario.clip_norm is not None:
                accelerator.clip_grad_norm_(model.parameters(), scenario.clip_norm)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()


def _in_two_blocks(
    accelerator: Any, model: nn.ModuleDict, optimizers: dict[str, Any], loader: Iterable[Any]
) -> None:
    for inputs, targets in loader:
        losses = adversarial_losses(model, inputs, targets)
        for name, optimizer in optimizers.items():
            with accelerator.accumulate(model[name]):
                accelerator.backward(losses[name], inputs=list(model[name].parameters()))
                optimizer.step()
                optimizer.zero_grad()


def _together(
    accelerator: Any, model: nn.ModuleDict, optimizers: dict[str, Any], loader: Iterable[Any]
) -> None:
    """Both models in one block, so that only the scaler is measured and not the block counter."""
    for inputs, targets in loader:
        with accelerator.accumulate(*model.values()):
            losses = adversarial_losses(model, inputs, targets)
            for name in optimizers:
                accelerator.backward(losses[name], inputs=list(model[name].parameters()))
            for optimizer in optimizers.values():
                optimizer.step()
                optimizer.zero_grad()


ROWS: tuple[Answers, ...] = (
    {
        Kind.EPOCH: epoch,
        Kind.TWO_OPTIMIZERS: epoch,
        Kind.RESUME: resume,
        Kind.BREAK: leave_early,
        Kind.ADVERSARIAL: adversarial,
        Kind.SCALED: adversarial,
    },
)
