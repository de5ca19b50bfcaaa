import torch
import torch.nn.functional as F


def train_pair(forward_net, inverse_net, loader):
    nets = [forward_net, inverse_net]
    opts = [torch.optim.Adam(net.parameters(), lr=1e-4) for net in nets]
    for state, action, after in loader:
        opts[0].zero_grad()
        predicted = forward_net(state, action)
        forward_loss = F.mse_loss(predicted, after)
        forward_loss.backward()
        opts[0].step()

        opts[0].zero_grad()  # expect-one: INS105
        guess = inverse_net(state, after)
        inverse_loss = F.cross_entropy(guess, action)
        inverse_loss.backward()  # expect-one: INS105
        opts[1].step()  # expect-one: INS105
