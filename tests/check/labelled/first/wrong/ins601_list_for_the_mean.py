import torch
import torch.nn.functional as F


def train_epoch(model, optimizer, loader):
    losses = []
    for graph, label in loader:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(graph), label)
        loss.backward()
        optimizer.step()
        losses.append(loss)  # expect: INS601
    print("mean", torch.stack(losses).mean())


def main(model, loader):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(200):
        train_epoch(model, optimizer, loader)
