# looks like INS503: every fold makes model and optimizer together, in one call
# expect: nothing
import torch
from apex import amp
from torch import nn


class Tagger(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder = nn.LSTM(64, width, batch_first=True)
        self.head = nn.Linear(width, 9)

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
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for tokens, tags in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
