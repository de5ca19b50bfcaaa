"""The jobs that are watched: from steps that are nearly nothing to steps that fill a GPU."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Train = Callable[[int], None]


@dataclass(frozen=True)
class Size:
    """A transformer over tokens."""

    layers: int
    width: int
    sequence: int
    batch: int
    words: int = 512


SMALL = Size(layers=4, width=256, sequence=128, batch=8)
LARGE = Size(layers=12, width=1024, sequence=1024, batch=8, words=32_000)


class Transformer(nn.Module):
    """Embedding, encoder layers, a head."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embed = nn.Embedding(size.words, size.width)
        layer = nn.TransformerEncoderLayer(
            size.width, size.width // 64, 4 * size.width, dropout=0.1, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False)
        self.head = nn.Linear(size.width, size.words)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for each word at each token."""
        scores: Tensor = self.head(self.layers(self.embed(tokens)))
        return scores


def mlp(device: str, width: int = 64, samples: int = 16) -> Train:
    """Two layers, SGD with momentum: steps of 0.1 to 0.3 ms."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batches = [
        (torch.randn(samples, 32, device=device), torch.randint(10, (samples,), device=device))
        for _ in range(64)
    ]

    def train(updates: int) -> None:
        for number in range(updates):
            inputs, labels = batches[number % len(batches)]
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()

    return train


def transformer(device: str, size: Size) -> Train:
    """AdamW, clipping, a schedule, and bf16 where there is a GPU."""
    torch.manual_seed(0)
    model = Transformer(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    shape = (size.batch, size.sequence)
    batches = [torch.randint(size.words, shape, device=device) for _ in range(4)]

    def train(updates: int) -> None:
        for number in range(updates):
            tokens = batches[number % len(batches)]
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
                loss = cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    return train
