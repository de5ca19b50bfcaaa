# trap 5: a hook of the optimizer clears after every step
# expect: nothing
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.register_step_post_hook(lambda o, args, kwargs: o.zero_grad())
for x, y in loader:
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
