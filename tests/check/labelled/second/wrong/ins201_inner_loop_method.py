import torch
from torch import nn


class DenoiserTrainer:
    def __init__(self, unet, batches, accumulate=8):
        self.unet = unet
        self.batches = iter(batches)
        self.accumulate = accumulate
        self.opt = torch.optim.AdamW(unet.parameters(), lr=1e-4)

    def micro_loss(self):
        clean = next(self.batches)
        noise = torch.randn_like(clean)
        t = torch.rand(clean.size(0), device=clean.device)
        return nn.functional.mse_loss(self.unet(clean + noise * t.view(-1, 1, 1, 1), t), noise)

    def train_step(self):
        self.opt.zero_grad()
        for _ in range(self.accumulate):
            loss = self.micro_loss()  # expect-one: INS201
            loss.backward()  # expect-one: INS201
        nn.utils.clip_grad_norm_(self.unet.parameters(), 1.0)
        self.opt.step()

    def train(self, steps):
        for step in range(steps):
            self.train_step()
