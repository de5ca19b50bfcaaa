import torch

w = torch.randn(20, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([w, b], lr=0.01)

for epoch in range(100):
    for x, y in loader:
        w.grad.zero_()  # expect-one: INS501
        b.grad.zero_()  # expect-one: INS501
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
