"""How do I train a language model that may be killed at any moment and loses nothing?

    python -m examples.train_lm --save out/lm.ckpt                       # one process
    torchrun --nproc-per-node 2 -m examples.train_lm --save out/lm       # several
    python -m examples.train_lm --save out/lm.ckpt                       # killed? the same again

A small GPT reads Python's own help texts, byte by byte. Lines are of any length, so that each
micro-batch holds another number of bytes; a window is the mean over its bytes, not over its
micro-batches. What is printed last is a digest of all weights: it is the same however often the run
was killed on its way.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader

import instep
from instep.distributed import shard

CONTEXT = 64
IGNORED = -100


class Block(nn.Module):
    """Attention to what came before, then a layer of its own for each place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project_in, self.project_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return what the places know after this block."""
        batch, length, width = x.shape
        parts = self.project_in(self.norm_1(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project_out(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.feed(self.norm_2(x))
        return out


class LanguageModel(nn.Module):
    """Bytes in; for each place, what the next byte may be."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.bytes.weight, std=0.05)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits over the 256 bytes."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.bytes(tokens) + self.places(places)))
        return F.linear(x, self.bytes.weight)


def lines_of_text(count: int) -> list[bytes]:
    """Return the first so many lines of Python's help."""
    lines = (line.strip() for name in sorted(topics) for line in topics[name].splitlines())
    return [line.encode()[: CONTEXT + 1] for line in lines if len(line) > 3][:count]


def padded(lines: list[bytes]) -> tuple[Tensor, Tensor]:
    """Return a batch: each byte, and the one after it; what is padding does not count."""
    longest = max(map(len, lines)) - 1
    tokens = torch.zeros(len(lines), longest, dtype=torch.long)
    targets = torch.full_like(tokens, IGNORED)
    for row, line in enumerate(lines):
        text = torch.tensor(list(line))
        tokens[row, : len(line) - 1] = text[:-1]
        targets[row, : len(line) - 1] = text[1:]
    return tokens, targets


def digest_of(model: nn.Module) -> str:
    """Return a short name for these very weights."""
    hashed = hashlib.sha256()
    for tensor in model.state_dict().values():
        hashed.update(tensor.cpu().numpy().tobytes())
    return hashed.hexdigest()[:16]


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = LanguageModel(options.width)
    spread = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = AdamW(model.parameters(), lr=4e-3)
    scheduler = LinearLR(optimizer, 1.0, 0.1, total_iters=200)
    lines: Any = lines_of_text(options.lines)
    loader: DataLoader[Any] = DataLoader(
        lines, batch_size=8, shuffle=True, collate_fn=padded, num_workers=options.workers
    )
    mine = shard(loader)  # every line on one of the processes; all, if alone
    stepper = instep.Stepper(spread, optimizer, scheduler=scheduler, clip_norm=1.0)
    with stepper.autosave(options.save, every=options.every) if options.save else nullcontext():
        for epoch in stepper.epochs(options.epochs):
            for window in stepper.windows(mine, size=4):
                for tokens, targets in window:
                    logits = spread(tokens).flatten(0, 1)
                    loss = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED)
                    window.backward(loss, items=(targets != IGNORED).sum())
                if window.index % 10 == 0:
                    say(f"epoch {epoch + 1}, update {window.index + 1}: loss {window.loss:.3f}")
    say(f"weights: {digest_of(model)}")


def say(line: str) -> None:
    """Print, once for all processes."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(line, flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    options = parser().parse_args(arguments)
    if not dist.is_torchelastic_launched():
        train(options)
        return
    dist.init_process_group("gloo")
    train(options)
    gc.collect()  # gloo aborts the process if a DDP model outlives its group
    dist.destroy_process_group()


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A small language model.")
    parser.add_argument("--save", help="where to save, and to go on from")
    parser.add_argument("--every", type=int, default=10, help="updates between two checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lines", type=int, default=400, help="lines of text")
    parser.add_argument("--width", type=int, default=64, help="of the model")
    parser.add_argument("--workers", type=int, default=0, help="processes that load the data")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
