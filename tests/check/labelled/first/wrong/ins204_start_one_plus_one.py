import torch

model = torch.nn.Linear(20, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
opt.zero_grad()
for i, (x, y) in enumerate(loader, start=1):
    loss = torch.nn.functional.cross_entropy(model(x), y) / 4
    loss.backward()
    if (i + 1) % 4 == 0 or i == len(loader):  # expect-one: INS204
        opt.step()  # expect-one: INS204
        opt.zero_grad()
