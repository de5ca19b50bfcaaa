import torch

optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.4, total_steps=len(loader) * 30)

for epoch in range(30):
    for x, y in loader:
        sched.step()  # expect: INS401
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
