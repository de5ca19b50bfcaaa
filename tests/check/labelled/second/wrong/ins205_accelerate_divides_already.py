import torch
from accelerate import Accelerator


def main(model, optimizer, loader, scheduler, epochs):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    model.train()
    for epoch in range(epochs):
        for images, captions in loader:
            with accelerator.accumulate(model):
                noise_pred, noise = model(images, captions)
                loss = torch.nn.functional.mse_loss(noise_pred, noise)
                loss = loss / accelerator.gradient_accumulation_steps  # expect-one: INS205
                accelerator.backward(loss)  # expect-one: INS205
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
