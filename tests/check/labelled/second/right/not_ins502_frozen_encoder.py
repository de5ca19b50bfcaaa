# looks like INS502: the pretrained encoder stays as it is, on purpose
# expect: nothing
import torch
from torch import nn


def probe(encoder, loader, dim, classes):
    encoder.eval()
    for p in encoder.parameters():
        p.requires_grad_(False)
    head = nn.Linear(dim, classes)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.3, momentum=0.9)
    for epoch in range(100):
        for x, y in loader:
            with torch.no_grad():
                features = encoder(x)
            loss = nn.functional.cross_entropy(head(features), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return head
