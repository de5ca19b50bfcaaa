import torch
import torch.nn as nn


def train(model, corpus, epochs, bptt=35):
    criterion = nn.NLLLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=20)
    model.train()
    for epoch in range(epochs):
        hidden = model.init_hidden(20)
        for start in range(0, corpus.size(0) - 1, bptt):
            data, targets = get_batch(corpus, start, bptt)
            hidden = tuple(h.detach() for h in hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)  # expect: INS302
