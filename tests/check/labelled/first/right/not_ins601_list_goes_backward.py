# trap 8: the list of losses is stacked and backpropagated
# expect: nothing
import torch
import torch.nn.functional as F


def multi_scale_step(net, optimizer, image, targets):
    losses = []
    for out, target in zip(net(image), targets):
        losses.append(F.l1_loss(out, target))
    loss = torch.stack(losses).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(net, loader):
    optimizer = torch.optim.Adam(net.parameters())
    for image, targets in loader:
        multi_scale_step(net, optimizer, image, targets)
