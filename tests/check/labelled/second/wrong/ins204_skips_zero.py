import torch
from tqdm import tqdm


def run_epoch(model, loader, loss_fn, opt, accum=4):
    model.train()
    opt.zero_grad()
    for i, batch in enumerate(tqdm(loader)):
        out = model(batch["x"].cuda())
        loss = loss_fn(out, batch["y"].cuda()) / accum
        loss.backward()
        if i > 0 and i % accum == 0:  # expect-one: INS204
            opt.step()  # expect-one: INS204
            opt.zero_grad()


def main(model, loader, loss_fn):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-5)
    for _ in range(5):
        run_epoch(model, loader, loss_fn, opt)
