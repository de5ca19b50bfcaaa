"""The small MLP as a script, for peers that run scripts: prints the seconds of a step."""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

UPDATES = 60


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batches = [(torch.randn(16, 32), torch.randint(10, (16,))) for _ in range(UPDATES)]
    times = []
    for inputs, labels in batches:
        started = time.thread_time()
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        times.append(time.thread_time() - started)
    sys.stdout.write(f"\nSTEP {statistics.median(times[UPDATES // 3 :])}\n")


main()
