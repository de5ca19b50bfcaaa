"""The model under the probe: a copy in float64 where the model is, with weights that hide nothing.

Trained weights can be too small to see, and float32 finds a wrong alignment silently; a copy with
fresh weights of a fair size does neither, and nothing that the probe does reaches the model itself.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from instep.errors import SplitError
from instep.splits.tree import tensors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from torch import Tensor


GLOBAL_NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm)


class Subject:
    """A model that can be run on made-up images of any size.

    inputs: examples of what it is called with; only their channels, types and values' range count.
    ratios: per input and axis, its pixels per pixel of the first one.
    without_norms: replace norms that look at the whole image by nothing, to see the rest.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[Tensor],
        ratios: Sequence[Sequence[Fraction]],
        *,
        without_norms: bool = False,
    ) -> None:
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.examples = [example[:1].detach() for example in inputs]
        self.ratios = ratios
        self.dims = len(ratios[0])
        self.model = _copy_of(model)
        if without_norms:
            _drop_norms(self.model)
        self.dropouts = _settle(self.model)
        self._buffers = [
            (module, name, value.clone())
            for module in self.model.modules()
            for name, value in module.named_buffers(recurse=False)
        ]
        self._cuda = [self.device] if self.device.type == "cuda" else []
        self._is_positive = False
        self._generator = torch.Generator().manual_seed(0)

    def images(self, sizes: Sequence[int]) -> list[Tensor]:
        """Make images of these sizes (of the first input; the others follow by their ratios)."""
        made = []
        for example, ratios in zip(self.examples, self.ratios, strict=True):
            shape = [int(size * ratio) for size, ratio in zip(sizes, ratios, strict=True)]
            whole = (*example.shape[: example.dim() - self.dims], *shape)
            if example.is_floating_point():
                drawn = torch.rand(whole, dtype=torch.float64, generator=self._generator)
                drawn = drawn if self._is_positive else drawn * 2 - 1
            else:
                low, high = int(example.min()), int(example.max())
                drawn = torch.randint(low, high + 1, whole, generator=self._generator)
                drawn = drawn.to(example.dtype)
            made.append(drawn.to(self.device))
        return made

    def cut(self, images: Sequence[Tensor], axis: int, start: int, end: int) -> list[Tensor]:
        """Cut all inputs along one axis, at pixels of the first one."""
        parts = []
        for image, ratios in zip(images, self.ratios, strict=True):
            first = int(start * ratios[axis])
            parts.append(image.narrow(axis - self.dims, first, int(end * ratios[axis]) - first))
        return parts

    def outputs(self, images: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
        """Run the copy without a graph."""
        with torch.no_grad():
            return self.forward(images, seed)

    def forward(self, images: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
        """Run the copy as it is called, on the same random numbers and buffers each time."""
        for module, name, value in self._buffers:
            # New ones, because a graph may hold the old: a write would be an edit of what it saved.
            setattr(module, name, value.clone())
        with torch.random.fork_rng(devices=self._cuda):
            torch.manual_seed(seed)
            result = self.model(*images)
        return list(tensors(result))

    def changes_buffers(self, images: Sequence[Tensor]) -> bool:
        """Whether a forward leaves something behind that the next one may read."""
        self.outputs(images)
        return any(
            not torch.equal(getattr(module, name), value) for module, name, value in self._buffers
        )

    def stride(self, axis: int) -> int:
        """Return the least common multiple of the strides that modules say they have."""
        found = [1]
        for module in self.model.modules():
            for name in ("stride", "downscale_factor"):
                value = getattr(module, name, None)
                if isinstance(value, tuple) and len(value) == self.dims:
                    value = value[axis]
                if isinstance(value, int) and value > 0:
                    found.append(value)
        return math.lcm(*found)

    def prefer_positive(self) -> None:
        """Make images without negative values, for models that take a root or a logarithm."""
        self._is_positive = True


def _copy_of(model: nn.Module) -> nn.Module:
    inner = getattr(model, "_orig_mod", model)
    try:
        return copy.deepcopy(inner).double()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise SplitError(
            f"{type(inner).__name__} cannot be copied.",
            why=f"its reach is measured on a copy, and copying it fails: {error}",
            fix="make it copyable (copy.deepcopy), or pass halo=0 for independent patches.",
            more="patches",
        ) from error


def _drop_norms(model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, GLOBAL_NORMS):
                setattr(module, name, nn.Identity())


def _settle(model: nn.Module) -> list[str]:
    """Give the copy weights of a fair size, and no dropout; return the names of the dropouts."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(True)  # noqa: FBT003 -- torch names it only in its stubs
            _refill(name, parameter, generator)
    names = []
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd) and module.training and module.p:
            names.append(name)
            module.eval()
    return names


def _refill(name: str, parameter: Tensor, generator: torch.Generator) -> None:
    if parameter.dim() >= 2:
        fan = max(parameter[0].numel(), 1)
        drawn = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
        parameter.copy_(drawn * math.sqrt(2.0 / fan))
    elif name.endswith("bias"):
        parameter.zero_()
    else:
        # Scales of norms and of residual branches: those that start at zero would hide a branch.
        drawn = torch.rand(parameter.shape, dtype=parameter.dtype, generator=generator)
        parameter.copy_(drawn + 0.5)
