import torch


def advance(optimizer, net, limit=1.0):
    torch.nn.utils.clip_grad_norm_(net.parameters(), limit)
    optimizer.step()
