# looks like INS103: pieces of a sequence, with a state that goes on
# expect: nothing
import torch


def train(rnn, loader, criterion, size):
    optimizer = torch.optim.Adam(rnn.parameters())
    for sequence, target in loader:
        hidden = None
        for t in range(0, sequence.size(1), size):
            out, hidden = rnn(sequence[:, t : t + size], hidden)
            hidden = hidden.detach()
            optimizer.zero_grad()
            criterion(out, target[:, t : t + size]).backward()
            optimizer.step()
