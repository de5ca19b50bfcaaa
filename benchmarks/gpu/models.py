"""What is trained on the GPU: a GPT of 739 M parameters, a small one, and a convolutional net."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward layer, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend, then transform."""
        samples, length, width = x.shape
        split = (samples, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm1(x)).view(split).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(samples, length, width))
        made: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return made


class GPT(nn.Module):
    """A language model without frills; 739 M parameters by default."""

    def __init__(
        self, width: int = 2048, layers: int = 12, words: int = 32768, length: int = 2048
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, width // 128) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        """Return the scores of every next word."""
        places = torch.arange(words.shape[1], device=words.device)
        x = self.embed(words) + self.place(places)
        for block in self.blocks:
            x = block(x)
        made: Tensor = self.head(self.norm(x))
        return made


def loss_of(model: nn.Module, words: Tensor) -> Tensor:
    """Return the mean loss of predicting each word from those before it."""
    scores = model(words[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1).float(), words[:, 1:].flatten())
