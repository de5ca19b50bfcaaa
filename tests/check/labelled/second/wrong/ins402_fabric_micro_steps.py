import lightning as L
import torch


def main(model, dataset, updates):
    fabric = L.Fabric(accelerator="cuda", devices=2, precision="bf16-mixed")
    fabric.launch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    model, optimizer = fabric.setup(model, optimizer)
    feed = iter(fabric.setup_dataloaders(dataset))

    n = 4
    for update in range(updates):
        for micro in range(n):
            image, label = next(feed)
            with fabric.no_backward_sync(model, enabled=micro < n - 1):
                loss = torch.nn.functional.cross_entropy(model(image), label)
                fabric.backward(loss / n)
            scheduler.step()  # expect: INS402
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
