# trap 5: one call goes backward, clips and steps
# expect: nothing
import math
import sys

import torch
from timm.utils import NativeScaler


def train_one_epoch(model, criterion, data_loader, optimizer, device, loss_scaler, max_norm=0):
    model.train()
    for samples, targets in data_loader:
        samples, targets = samples.to(device), targets.to(device)
        with torch.amp.autocast("cuda"):
            loss = criterion(model(samples), targets)
        if not math.isfinite(loss.item()):
            sys.exit(1)
        optimizer.zero_grad()
        second_order = hasattr(optimizer, "is_second_order") and optimizer.is_second_order
        loss_scaler(
            loss,
            optimizer,
            clip_grad=max_norm,
            parameters=model.parameters(),
            create_graph=second_order,
        )


def main(args, model, criterion, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loss_scaler = NativeScaler()
    for _ in range(args.epochs):
        train_one_epoch(model, criterion, loader, optimizer, "cuda", loss_scaler)
