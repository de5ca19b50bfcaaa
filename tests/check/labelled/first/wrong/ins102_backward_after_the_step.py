import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()  # expect-one: INS102
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.step()  # expect-one: INS102
    loss.backward()  # expect-one: INS102
