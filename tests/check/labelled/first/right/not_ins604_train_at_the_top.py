# looks like INS604: eval mode ends where the next epoch begins
# expect: nothing
import torch

optimizer = torch.optim.Adam(net.parameters())
for epoch in range(30):
    net.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        hits = sum((net(x).argmax(1) == y).sum().item() for x, y in val_loader)
