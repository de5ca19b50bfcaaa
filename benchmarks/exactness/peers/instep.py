"""`instep.Stepper`. Nothing here knows how many micro-batches or items a window will have."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

import instep
from benchmarks.exactness.losses import adversarial_losses
from benchmarks.exactness.peers import Answers
from benchmarks.exactness.scenarios import Kind, Scenario


def epoch(scenario: Scenario, model: nn.Module) -> nn.Module:
    """One optimizer."""
    (optimizer,) = scenario.optimizers(model)
    stepper = instep.Stepper(model, optimizer, clip_norm=scenario.clip_norm)
    _epoch(scenario, model, stepper)
    return model


def two_optimizers(scenario: Scenario, model: nn.Module) -> nn.Module:
    """Optimizers in a list update together."""
    stepper = instep.Stepper(model, list(scenario.optimizers(model)))
    _epoch(scenario, model, stepper)
    return model


def resume(scenario: Scenario, model: nn.Module) -> nn.Module:
    """The stepper's state beside the usual two; new objects go on where the old ones were."""
    (optimizer,) = scenario.optimizers(model)
    stepper = instep.Stepper(model, optimizer)
    saved = _state_after(scenario, model, optimizer, stepper)

    resumed = scenario.fresh_model()
    (optimizer,) = scenario.optimizers(resumed)
    stepper = instep.Stepper(resumed, optimizer)
    resumed.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    stepper.load_state_dict(saved["stepper"])
    _epoch(scenario, resumed, stepper)
    return resumed


def leave_early(scenario: Scenario, model: nn.Module) -> nn.Module:
    """A plain `break`, then the same loop again."""
    (optimizer,) = scenario.optimizers(model)
    stepper = instep.Stepper(model, optimizer)
    seen = 0
    for window in stepper.windows(scenario.loader(), size=scenario.window):
        for inputs, targets in window:
            if seen == scenario.interrupted_after:
                break
            seen += 1
            _backward(scenario, window, model(inputs), targets)
        if seen == scenario.interrupted_after:
            break
    _epoch(scenario, model, stepper)
    return model


def adversarial(scenario: Scenario, model: nn.Module) -> nn.Module:
    """Each backward feeds its own optimizer; each optimizer has its own window."""
    assert isinstance(model, nn.ModuleDict)
    sizes = dict(scenario.sizes)
    optimizers = dict(zip(sizes, scenario.optimizers(model), strict=True))
    options: dict[str, Any] = {}
    if scenario.kind is Kind.SCALED:
        scaler = torch.amp.GradScaler(
            "cpu", init_scale=scenario.init_scale, growth_interval=scenario.growth_interval
        )
        options = {"precision": "fp16", "scaler": scaler}
    stepper = instep.Stepper(model, optimizers, **options)
    for window in stepper.windows(scenario.loader(), size=sizes):
        for inputs, targets in window:
            losses = adversarial_losses(model, inputs, targets)
            for name in sizes:
                window.backward(losses[name], items=targets.numel(), optimizer=name)
    return model


def _epoch(scenario: Scenario, model: nn.Module, stepper: instep.Stepper) -> None:
    for window in stepper.windows(scenario.loader(), size=scenario.window):
        for inputs, targets in window:
            _backward(scenario, window, model(inputs), targets)


def _backward(scenario: Scenario, window: Any, outputs: Tensor, targets: Tensor) -> None:
    loss, counts = scenario.loss, scenario.loss.counts(targets)
    if len(loss.terms) == 1:
        (items,) = counts.values()
        window.backward(loss(outputs, targets), items=items)
    else:
        weights = {term.name: term.weight for term in loss.terms}
        window.backward(loss.means(outputs, targets), items=counts, weight=weights)


def _state_after(
    scenario: Scenario, model: nn.Module, optimizer: torch.optim.Optimizer, stepper: instep.Stepper
) -> dict[str, Any]:
    seen = 0
    for window in stepper.windows(scenario.loader(), size=scenario.window):
        for inputs, targets in window:
            _backward(scenario, window, model(inputs), targets)
            seen += 1
            if seen == scenario.interrupted_after:
                # Copied, because a state_dict shares its tensors with the living objects.
                return copy.deepcopy(
                    {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "stepper": stepper.state_dict(),
                    }
                )
    raise AssertionError("the scenario is interrupted inside its epoch")


ROWS: tuple[Answers, ...] = (
    {
        Kind.EPOCH: epoch,
        Kind.TWO_OPTIMIZERS: two_optimizers,
        Kind.RESUME: resume,
        Kind.BREAK: leave_early,
        Kind.ADVERSARIAL: adversarial,
        Kind.SCALED: adversarial,
    },
)
