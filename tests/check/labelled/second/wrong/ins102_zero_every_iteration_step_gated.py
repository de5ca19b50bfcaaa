import torch
from torch.utils.data import DataLoader

ACCUM = 4
MAX_ITERS = 8000


def infinite(loader):
    while True:
        yield from loader


def main(dataset, model, criterion):
    loader = DataLoader(dataset, batch_size=2, shuffle=True, drop_last=True)
    batches = iter(infinite(loader))
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    model.train()
    for iteration in range(MAX_ITERS):
        volume, mask = next(batches)
        opt.zero_grad()  # expect: INS102
        loss = criterion(model(volume.cuda()), mask.cuda()) / ACCUM
        loss.backward()
        if (iteration + 1) % ACCUM == 0:
            opt.step()
            print(iteration, loss.item() * ACCUM)
