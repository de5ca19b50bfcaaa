import torch
from torch.nn.functional import nll_loss

optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
for epoch in range(epochs):
    model.train()
    for tree, label in trees:
        optimizer.zero_grad()  # expect-one: INS106
        model.zero_grad()  # expect-one: INS106
        loss = nll_loss(model(tree), label)
        loss.backward()
        optimizer.step()
