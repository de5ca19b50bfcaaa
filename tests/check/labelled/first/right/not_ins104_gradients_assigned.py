# looks like INS104: `torch.autograd.grad` takes the place of backward, and its result is stored
# expect: nothing
import torch

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
params = list(model.parameters())
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    grads = torch.autograd.grad(loss, params)
    for p, g in zip(params, grads):
        p.grad = g
    optimizer.step()
