"""The networks on which splits are tried: small ones, of every kind that dense prediction uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

Padding = Literal["zeros", "reflect", "replicate", "circular"]
Way = Literal["transposed", "scale", "size", "corners"]


def plain(channels: int = 8) -> nn.Module:
    """Three convolutions."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(channels, 3, 3, padding=1),
    )


def dilated(channels: int = 8) -> nn.Module:
    """Dilations of 1, 2, 4 and 8."""
    layers: list[nn.Module] = []
    for before, dilation in ((3, 1), (channels, 2), (channels, 4)):
        conv = nn.Conv2d(before, channels, 3, padding=dilation, dilation=dilation)
        layers += [conv, nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(channels, 2, 3, padding=8, dilation=8))


def super_resolution(factor: int, channels: int = 8) -> nn.Module:
    """Convolutions, then PixelShuffle."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 3 * factor * factor, 3, padding=1),
        nn.PixelShuffle(factor),
    )


def separable(channels: int = 8) -> nn.Module:
    """Depthwise and pointwise convolutions, one of them with a stride, and an upsampling."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 1),
        nn.Conv2d(channels, channels, 5, padding=2, groups=channels),
        nn.Conv2d(channels, channels, 1),
        nn.SiLU(),
        nn.Conv2d(channels, channels, 3, padding=1, stride=2, groups=channels),
        nn.Conv2d(channels, channels, 1),
        nn.SiLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(channels, 2, 3, padding=1),
    )


class Residual(nn.Module):
    """Residual blocks, with any padding and any norm inside."""

    def __init__(
        self,
        padding: Padding = "zeros",
        *,
        norm: Callable[[], nn.Module] = nn.Identity,
        blocks: int = 4,
    ) -> None:
        super().__init__()

        def conv(before: int, after: int) -> nn.Module:
            return nn.Conv2d(before, after, 3, padding=1, padding_mode=padding)

        self.first = conv(3, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(8, 8), norm(), nn.GELU(), conv(8, 8)) for _ in range(blocks)
        )
        self.last = conv(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Add up the blocks."""
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        made: Tensor = x + self.last(h)
        return made


class UNet(nn.Module):
    """Pooling down, and up again by the way that is asked for, in 2-D or 3-D."""

    def __init__(
        self,
        way: Way = "transposed",
        *,
        dims: int = 2,
        depth: int = 3,
        width: int = 6,
        inputs: int = 3,
    ) -> None:
        super().__init__()
        conv = nn.Conv2d if dims == 2 else nn.Conv3d
        transposed = nn.ConvTranspose2d if dims == 2 else nn.ConvTranspose3d
        self.way = way
        self.dims = dims
        before = [inputs, *[width] * (depth - 1)]
        self.down = nn.ModuleList(
            nn.Sequential(
                conv(c, width, 3, padding=1), nn.ReLU(), conv(width, width, 3, padding=1), nn.ReLU()
            )
            for c in before
        )
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        self.middle = nn.Sequential(conv(width, width, 3, padding=1), nn.ReLU())
        self.lift = nn.ModuleList(
            transposed(width, width, 2, stride=2) if way == "transposed" else nn.Identity()
            for _ in before
        )
        self.up = nn.ModuleList(
            nn.Sequential(conv(2 * width, width, 3, padding=1), nn.ReLU()) for _ in before
        )
        self.head = conv(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Go down and up; what odd sizes lost is padded with zeros, unless resizing is asked."""
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for lift, block in zip(self.lift, self.up, strict=True):
            skip = skips.pop()
            x = self._raised(x, lift, skip)
            x = block(torch.cat([x, skip], 1))
        made: Tensor = self.head(x)
        return made

    def _raised(self, x: Tensor, lift: nn.Module, skip: Tensor) -> Tensor:
        mode = "bilinear" if self.dims == 2 else "trilinear"
        if self.way == "size":
            return functional.interpolate(x, size=skip.shape[2:], mode=mode)
        if self.way == "transposed":
            x = lift(x)
        else:
            corners = self.way == "corners"
            x = functional.interpolate(x, scale_factor=2, mode=mode, align_corners=corners)
        missing = [n - m for n, m in zip(skip.shape[2:], x.shape[2:], strict=True)]
        return functional.pad(x, [side for n in reversed(missing) for side in (0, n)])


class SqueezeExcite(nn.Module):
    """A gate that is computed from the mean of the whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.gate = nn.Conv2d(8, 8, 1)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Gate the channels."""
        h = self.conv(x)
        made: Tensor = self.head(h * self.gate(self.pool(h)).sigmoid())
        return made


class MeanGate(SqueezeExcite):
    """The same gate, written as a function."""

    def forward(self, x: Tensor) -> Tensor:
        """Gate the channels."""
        h = self.conv(x)
        made: Tensor = self.head(h * self.gate(h.mean((2, 3), keepdim=True)).sigmoid())
        return made


class Attention(nn.Module):
    """Attention over the whole image, on patches of 4 x 4."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, stride=4)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.ConvTranspose2d(8, 2, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over all places."""
        h = self.embed(x)
        flat = h.flatten(2).transpose(1, 2)
        flat = flat + self.attend(flat, flat, flat)[0]
        made: Tensor = self.head(flat.transpose(1, 2).reshape(h.shape))
        return made


class Coordinates(nn.Module):
    """A convolution that is told where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(5, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Add two channels of coordinates."""
        samples, _, height, width = x.shape
        rows = torch.linspace(0, 1, height, dtype=x.dtype).view(1, 1, -1, 1)
        columns = torch.linspace(0, 1, width, dtype=x.dtype).view(1, 1, 1, -1)
        shape = (samples, 1, height, width)
        made: Tensor = self.conv(torch.cat([x, rows.expand(shape), columns.expand(shape)], 1))
        return made


EXACT: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "plain": (plain, (2, 3, 61, 47), 16),
    "dilated": (dilated, (1, 3, 101, 83), 32),
    "U-Net, transposed": (UNet, (1, 3, 123, 101), 32),
    "U-Net, bilinear": (lambda: UNet("scale"), (1, 3, 131, 99), 32),
    "residual, reflect": (lambda: Residual("reflect"), (1, 3, 71, 54), 24),
    "residual, replicate": (lambda: Residual("replicate"), (1, 3, 71, 54), 24),
    "PixelShuffle x2": (lambda: super_resolution(2), (1, 3, 45, 53), 16),
    "PixelShuffle x4": (lambda: super_resolution(4), (1, 3, 45, 53), 16),
    "3-D U-Net": (lambda: UNet(dims=3, depth=1, inputs=1), (1, 1, 19, 24, 21), 12),
    "depthwise separable": (separable, (1, 3, 65, 58), 20),
}
"""Networks whose patches add up to the whole image: how to make them, a batch, a patch."""

INEXACT: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "BatchNorm in training": (lambda: Residual(norm=lambda: nn.BatchNorm2d(8)), "blocks.0.1"),
    "InstanceNorm": (lambda: Residual(norm=lambda: nn.InstanceNorm2d(8)), "blocks.0.1"),
    "GroupNorm": (lambda: Residual(norm=lambda: nn.GroupNorm(2, 8)), "blocks.0.1"),
    "global pooling": (SqueezeExcite, "`pool` (AdaptiveAvgPool2d)"),
    "squeeze-excite": (MeanGate, "the forward of `MeanGate`"),
    "attention": (Attention, "`attend` (MultiheadAttention)"),
    "circular padding": (lambda: Residual("circular"), "`first` (Conv2d)"),
    "align_corners": (lambda: UNet("corners"), "the forward of `UNet`"),
    "coordinates": (Coordinates, "the forward of `Coordinates`"),
}
"""Networks whose patches do not, and the module that the refusal must name."""
