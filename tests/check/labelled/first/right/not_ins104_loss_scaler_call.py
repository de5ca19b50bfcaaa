# trap 5: one object goes backward, clips, steps and updates its scale
# expect: nothing
import torch
from timm.utils import NativeScaler


def train_one_epoch(model, criterion, loader, optimizer, max_norm):
    loss_scaler = NativeScaler()
    model.train()
    for samples, targets in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(samples), targets)
        optimizer.zero_grad()
        loss_scaler(loss, optimizer, clip_grad=max_norm, parameters=model.parameters())
