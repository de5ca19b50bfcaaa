# looks like INS503: every fold makes model and optimizer together, in one call
# expect: nothing
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder = nn.LSTM(8, width, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens):
        return self.head(self.encoder(tokens)[0])


def fresh(width, rates):
    model = Tagger(width)
    groups = [
        {"params": list(model.encoder.parameters()), "lr": rates[0]},
        {"params": list(model.head.parameters()), "lr": rates[1]},
    ]
    return model, torch.optim.AdamW(groups)


def cross_validate(folds, device):
    cross_entropy = nn.CrossEntropyLoss()
    for loader in folds:
        model, optimizer = fresh(128, (1e-4, 1e-3))
        model = model.to(device)
        for tokens, tags in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
            loss.backward()
            optimizer.step()
