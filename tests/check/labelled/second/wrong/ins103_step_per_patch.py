import torch
import torch.nn.functional as F


def train_epoch(model, loader, optimizer, device, patch_size=64):
    model.train()
    for image, mask in loader:
        image, mask = image.to(device), mask.to(device)
        # a 512 x 512 slide does not fit through the network, so it goes in patch by patch
        patches = image.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
        targets = mask.unfold(1, patch_size, patch_size).unfold(2, patch_size, patch_size)
        for row in range(patches.size(2)):
            for col in range(patches.size(3)):
                patch = patches[:, :, row, col]
                optimizer.zero_grad()
                logits = model(patch)
                loss = F.cross_entropy(logits, targets[:, row, col])
                loss.backward()
                optimizer.step()  # expect: INS103
