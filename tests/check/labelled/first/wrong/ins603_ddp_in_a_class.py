import torch
from torch.nn.parallel import DistributedDataParallel


class Worker:
    def __init__(self, net, rank):
        self.net = DistributedDataParallel(net.to(rank), device_ids=[rank])
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=1e-4)

    def update(self, batches):
        self.optim.zero_grad()
        for _ in range(4):
            x, y = next(batches)
            loss = torch.nn.functional.cross_entropy(self.net(x), y)  # expect-one: INS603
            (loss / 4).backward()  # expect-one: INS603
        self.optim.step()

    def run(self, batches, updates):
        for _ in range(updates):
            self.update(batches)
