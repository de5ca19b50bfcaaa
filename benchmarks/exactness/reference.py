"""The true large batch: what every engine should have computed, in the most obvious way.

It shares the data and the losses' sums with the peers, and no training code: gradients come from
`torch.autograd.grad`, SGD is written out, nothing accumulates into `.grad`.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from benchmarks.exactness.losses import adversarial_losses
from benchmarks.exactness.scenarios import Kind, MicroBatch, Scenario


def accepted(scenario: Scenario) -> tuple[nn.Module, ...]:
    """The trained models that count as right. Leaving early has two: discarded or flushed."""
    if scenario.kind in (Kind.ADVERSARIAL, Kind.SCALED):
        return (_adversarial(scenario),)
    whole = list(scenario.windows())
    if scenario.kind is not Kind.BREAK:
        return (_train(scenario, whole),)
    full, left = divmod(scenario.interrupted_after, scenario.window)
    discarded = _train(scenario, [*whole[:full], *whole])
    flushed = _train(scenario, [*whole[:full], whole[full][:left], *whole])
    return (discarded, flushed)


def relative_error(trained: nn.Module, scenario: Scenario) -> float:
    """|Δ − Δtrue| / |Δtrue| of the parameter update, against the nearest accepted answer."""
    start = _flat(scenario.fresh_model())
    return min(
        float((_flat(trained) - _flat(truth)).norm() / (_flat(truth) - start).norm())
        for truth in accepted(scenario)
    )


def _train(scenario: Scenario, windows: Iterable[Sequence[MicroBatch]]) -> nn.Module:
    """One update per window, on its concatenated items; no items, no update."""
    model = scenario.fresh_model()
    for window in windows:
        inputs = torch.cat([micro.inputs for micro in window])
        targets = torch.cat([micro.targets for micro in window])
        sums, counts = scenario.loss.sums(model(inputs), targets), scenario.loss.counts(targets)
        terms = [
            sums[term.name] * term.weight / counts[term.name]
            for term in scenario.loss.terms
            if counts[term.name] > 0
        ]
        if terms:
            _update(scenario, model, sum(terms[1:], terms[0]))
    return model


def _update(scenario: Scenario, model: nn.Module, loss: Tensor) -> None:
    parameters = list(model.parameters())
    gradients = dict(zip(parameters, torch.autograd.grad(loss, parameters), strict=True))
    if scenario.clip_norm is not None:
        norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        # The 1e-6 is torch.nn.utils.clip_grad_norm_'s: part of the definition, not an error.
        factor = (scenario.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        gradients = {parameter: gradient * factor for parameter, gradient in gradients.items()}
    with torch.no_grad():
        groups = scenario.parameter_groups(model)
        for group, rate in zip(groups, scenario.learning_rates, strict=True):
            for parameter in group:
                parameter.sub_(rate * gradients[parameter])


def _adversarial(scenario: Scenario) -> nn.Module:
    """Each model has its own window and its own sum of item gradients.

    The windows differ, so the weights of one change inside a window of the other: every micro-batch
    is differentiated at the weights it met. A window with a non-finite gradient is skipped, which
    is all that loss scaling by powers of two may change.
    """
    model = scenario.fresh_model()
    assert isinstance(model, nn.ModuleDict)
    rates = dict(zip((name for name, _ in scenario.sizes), scenario.learning_rates, strict=True))
    totals: dict[str, list[Tensor]] = {}
    items = dict.fromkeys(rates, 0)
    for index, micro in enumerate(scenario.micro_batches, start=1):
        losses = adversarial_losses(model, micro.inputs, micro.targets)
        count = micro.targets.numel()
        for name in rates:
            own = list(model[name].parameters())
            found = torch.autograd.grad(losses[name] * count, own, retain_graph=True)
            kept = totals.get(name, [torch.zeros_like(parameter) for parameter in own])
            totals[name] = [total + new for total, new in zip(kept, found, strict=True)]
            items[name] += count
        for name, size in scenario.sizes:
            if index % size == 0:
                _step_if_finite(model[name], totals.pop(name), rates[name] / items[name])
                items[name] = 0
    return model


def _step_if_finite(module: nn.Module, gradients: Sequence[Tensor], rate: float) -> None:
    if not all(bool(gradient.isfinite().all()) for gradient in gradients):
        return
    with torch.no_grad():
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter.sub_(rate * gradient)


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
