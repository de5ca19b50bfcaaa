import torch
from torch import nn


class PatchTrainer:
    def __init__(self, net, lr):
        self.net = net
        self.mse = nn.MSELoss()
        self.optim = torch.optim.Adam(net.parameters(), lr=lr)

    def on_patch(self, patch, target_patch):
        self.optim.zero_grad()
        loss = self.mse(self.net(patch), target_patch)
        loss.backward()
        self.optim.step()  # expect-one: INS103
        return loss.item()

    def on_image(self, image, target):
        image_patches = torch.split(image, 96, dim=-1)
        target_patches = torch.split(target, 96, dim=-1)
        losses = []
        for patch, target_patch in zip(image_patches, target_patches):
            losses.append(self.on_patch(patch, target_patch))  # expect-one: INS103
        return sum(losses) / len(losses)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for image, target in loader:
                self.on_image(image, target)
