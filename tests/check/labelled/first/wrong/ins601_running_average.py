import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    average = 0.9 * average + 0.1 * loss  # expect: INS601
print(float(average))
