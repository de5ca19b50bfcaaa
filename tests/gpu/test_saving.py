"""A run on a device is saved, also in the background, and goes on bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import instep

DEVICE = "cuda"


class Job:
    """Dropout draws from the device's generator; the loss scale grows on the way."""

    def __init__(self, seed: int, **options) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 3))
        self.model.to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.stepper = instep.Stepper(self.model, self.optimizer, clip_norm=1.0, **options)
        generator = torch.Generator().manual_seed(5)
        self.data = [torch.randn(6, 8, generator=generator).to(DEVICE) for _ in range(7)]

    def epoch(self, at=None, then=None) -> None:
        seen = 0
        for window in self.stepper.windows(self.data, size=3):
            for x in window:
                loss = F.cross_entropy(self.model(x).float(), x.argmax(1) % 3)
                window.backward(loss, items=len(x))
                seen += 1
                if seen == at:
                    then()


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"precision": "fp16"}, {"precision": "bf16", "fused": True}], ids=str
)
@pytest.mark.parametrize("at", [3, 5])
def test_a_run_on_a_device_goes_on(tmp_path, options, wait, at):
    path = tmp_path / "run.ckpt"
    job = Job(1, **options)
    job.epoch()
    writing = []
    job.epoch(at, lambda: writing.append(job.stepper.save(path, wait=wait)))
    job.epoch()
    writing[0].wait()
    again = Job(2, **options)
    again.stepper.load(path)
    again.epoch()
    again.epoch()
    for name, tensor in job.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
