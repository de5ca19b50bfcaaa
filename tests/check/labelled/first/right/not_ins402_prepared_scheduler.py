# trap 2: a prepared scheduler counts updates by itself
# expect: nothing
import torch
import torch.nn.functional as F
from accelerate import Accelerator


def train(unet, loader, updates):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    opt = torch.optim.AdamW(unet.parameters(), lr=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=updates)
    unet, opt, loader, sched = accelerator.prepare(unet, opt, loader, sched)
    for noisy, noise in loader:
        with accelerator.accumulate(unet):
            loss = F.mse_loss(unet(noisy), noise)
            accelerator.backward(loss)
            opt.step()
            sched.step()
            opt.zero_grad()
