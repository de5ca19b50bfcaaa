# looks like INS604: only the BatchNorm layers are put in eval mode, on purpose
# expect: nothing
import torch
from torch import nn


def freeze_batchnorm(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


def finetune(detector, loader, epochs):
    optimizer = torch.optim.SGD(detector.parameters(), lr=1e-3)
    for _ in range(epochs):
        detector.train()
        freeze_batchnorm(detector)
        for images, targets in loader:
            loss = sum(detector(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
