# trap 9: gradient descent by hand, with no optimizer
# expect: nothing
import torch

w = torch.randn(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for _ in range(500):
    loss = ((points @ w + b - heights) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        b -= 0.1 * b.grad
        w.grad = None
        b.grad = None
