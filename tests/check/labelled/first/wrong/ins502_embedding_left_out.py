import torch
import torch.nn as nn


def train(loader, vocab):
    embed = nn.Embedding(vocab, 256)  # expect-one: INS502
    decoder = nn.GRU(256, 256, batch_first=True)
    project = nn.Linear(256, vocab)
    params = list(decoder.parameters()) + list(project.parameters())
    optimizer = torch.optim.Adam(params, lr=1e-3)  # expect-one: INS502
    for tokens in loader:
        optimizer.zero_grad()
        hidden, _ = decoder(embed(tokens[:, :-1]))
        logits = project(hidden)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # expect-one: INS502
        optimizer.step()  # expect-one: INS502
