# looks like INS401: the scheduler moves at the end of the epoch, after a validation
# expect: nothing
import torch

optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
for epoch in range(90):
    net.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    evaluate(net, val_loader)
    scheduler.step()
