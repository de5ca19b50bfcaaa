import torch
from torch import nn


def split_in_patches(image, size):
    rows = image.unfold(2, size, size).unfold(3, size, size)
    n, c = rows.shape[:2]
    return rows.permute(2, 3, 0, 1, 4, 5).reshape(-1, n, c, size, size)


def train_superres(net, loader, epochs=50, size=128):
    l1 = nn.L1Loss()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
    for epoch in range(epochs):
        for low, high in loader:
            low_patches = split_in_patches(low, size)
            high_patches = split_in_patches(high, size)
            for patch, target in zip(low_patches, high_patches):
                optimizer.zero_grad()  # expect: INS102
                loss = l1(net(patch), target) / len(low_patches)
                loss.backward()
            optimizer.step()
