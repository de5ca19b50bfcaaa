import torch


def configure(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def fit(model, loader):
    config = configure(model)
    optimizer = config["optimizer"]
    scheduler = config["lr_scheduler"]["scheduler"]
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        scheduler.step()  # expect: INS401
        optimizer.step()
