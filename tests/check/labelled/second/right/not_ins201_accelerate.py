# trap 2: accumulate() divides, gates the step and the clearing by itself
# expect: nothing
import torch
from accelerate import Accelerator


def main(unet, dataset_loader, epochs):
    accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    unet, optimizer, loader, lr_scheduler = accelerator.prepare(
        unet, optimizer, dataset_loader, lr_scheduler
    )
    for epoch in range(epochs):
        unet.train()
        for latents, noise, t in loader:
            with accelerator.accumulate(unet):
                loss = torch.nn.functional.mse_loss(unet(latents, t), noise)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(unet.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
