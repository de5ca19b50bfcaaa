# trap 4: a lambda is mapped over the optimizers
# expect: nothing
import torch

opts = [torch.optim.SGD(model.parameters(), lr=0.1)]
for x, y in loader:
    torch.nn.functional.mse_loss(model(x), y).backward()
    for opt in opts:
        opt.step()
    list(map(lambda opt: opt.zero_grad(), opts))
