# trap 6: the base class clears, the task goes backward, a helper module steps
# expect: nothing
import torch
from runner.task import DenoisingTask


def main(loader):
    net = torch.nn.Conv2d(1, 1, 3, padding=1)
    DenoisingTask(net, torch.optim.Adam(net.parameters(), lr=1e-3)).run(loader, epochs=3)
