"""The loop of tutorials: divide by n, step when `(i + 1) % n == 0`."""

import copy

import torch
from torch import nn

from benchmarks.exactness.losses import adversarial_losses
from benchmarks.exactness.peers import Answers
from benchmarks.exactness.scenarios import Kind, Scenario


def epoch(scenario: Scenario, model: nn.Module) -> nn.Module:
    """One optimizer or several: they step together."""
    optimizers = scenario.optimizers(model)
    _epoch(scenario, model, optimizers)
    return model


def resume(scenario: Scenario, model: nn.Module) -> nn.Module:
    """The usual checkpoint: weights, optimizer, position. Gradients are in neither state_dict."""
    optimizers = scenario.optimizers(model)
    _epoch(scenario, model, optimizers, stop=scenario.interrupted_after)
    saved = copy.deepcopy((model.state_dict(), [each.state_dict() for each in optimizers]))

    resumed = scenario.fresh_model()
    resumed.load_state_dict(saved[0])
    optimizers = scenario.optimizers(resumed)
    for optimizer, state in zip(optimizers, saved[1], strict=True):
        optimizer.load_state_dict(state)
    _epoch(scenario, resumed, optimizers, start=scenario.interrupted_after)
    return resumed


def leave_early(scenario: Scenario, model: nn.Module) -> nn.Module:
    """`break` inside the first epoch, then the same loop again."""
    optimizers = scenario.optimizers(model)
    _epoch(scenario, model, optimizers, stop=scenario.interrupted_after)
    _epoch(scenario, model, optimizers)
    return model


def adversarial(scenario: Scenario, model: nn.Module) -> nn.Module:
    """Two losses; `inputs=` keeps each out of the other's gradients."""
    assert isinstance(model, nn.ModuleDict)
    sizes = dict(scenario.sizes)
    optimizers = dict(zip(sizes, scenario.optimizers(model), strict=True))
    for index, (inputs, targets) in enumerate(scenario.loader()):
        losses = adversarial_losses(model, inputs, targets)
        for name, size in sizes.items():
            loss = losses[name] / size
            loss.backward(inputs=list(model[name].parameters()))
        for name, size in sizes.items():
            if (index + 1) % size == 0:
                optimizers[name].step()
                optimizers[name].zero_grad()
    return model


def scaled(scenario: Scenario, model: nn.Module) -> nn.Module:
    """As in PyTorch's AMP examples: every optimizer steps, then one `scaler.update()`."""
    assert isinstance(model, nn.ModuleDict)
    sizes = dict(scenario.sizes)
    optimizers = dict(zip(sizes, scenario.optimizers(model), strict=True))
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=scenario.init_scale, growth_interval=scenario.growth_interval
    )
    for index, (inputs, targets) in enumerate(scenario.loader()):
        with torch.autocast("cpu", dtype=torch.float16):
            losses = adversarial_losses(model, inputs, targets)
        for name, size in sizes.items():
            loss = scaler.scale(losses[name] / size)
            loss.backward(inputs=list(model[name].parameters()))
        due = [name for name, size in sizes.items() if (index + 1) % size == 0]
        for name in due:
            scaler.step(optimizers[name])
        if due:
            scaler.update()
        for name in due:
            optimizers[name].zero_grad()
    return model


def _epoch(
    scenario: Scenario,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    *,
    start: int = 0,
    stop: int | None = None,
) -> None:
    for index, (inputs, targets) in enumerate(scenario.loader()):
        if index < start:
            continue
        if index == stop:
            break
        loss = scenario.loss(model(inputs), targets)
        (loss / scenario.window).backward()
        if (index + 1) % scenario.window == 0:
            if scenario.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), scenario.clip_norm)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()


ROWS: tuple[Answers, ...] = (
    {
        Kind.EPOCH: epoch,
        Kind.TWO_OPTIMIZERS: epoch,
        Kind.RESUME: resume,
        Kind.BREAK: leave_early,
        Kind.ADVERSARIAL: adversarial,
        Kind.SCALED: scaled,
    },
)
