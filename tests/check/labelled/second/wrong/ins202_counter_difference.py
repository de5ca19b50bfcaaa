import torch
import torch.nn.functional as F

BIG = 6


def train(model, loader, opt):
    for epoch in range(3):
        opt.zero_grad()
        last_step = -1
        for i, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x), y)
            loss = loss / BIG
            loss.backward()  # expect-one: INS202
            if i - last_step >= BIG:  # expect-one: INS202
                opt.step()  # expect-one: INS202
                opt.zero_grad()
                last_step = i
        torch.save(model.state_dict(), f"epoch{epoch}.pt")
