import torch
from accelerate import Accelerator


def training_function(config, model, train_loader):
    accelerator = Accelerator(mixed_precision=config["precision"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1000)
    model, optimizer, train_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, scheduler
    )
    for epoch in range(config["epochs"]):
        model.train()
        for x, y in train_loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)  # expect-one: INS101
            optimizer.step()  # expect-one: INS101
            scheduler.step()
        accelerator.print(epoch, loss.item())
