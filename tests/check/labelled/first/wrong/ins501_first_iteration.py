import torch

mlp = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
opt = torch.optim.SGD(mlp.parameters(), lr=0.01)
for epoch in range(100):
    biggest = max(p.grad.abs().max().item() for p in mlp.parameters())  # expect: INS501
    print(epoch, biggest)
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(mlp(inputs), targets)
    loss.backward()
    opt.step()
