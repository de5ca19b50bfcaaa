# looks like INS601: what is kept is detached, and validation has no graph to keep
# expect: nothing
import torch

history = []
for epoch in range(20):
    net.train()
    running = 0.0
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        optimizer.step()
        running += loss.detach()
    net.eval()
    val_loss = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            val_loss += loss_fn(net(x), y)
    history.append((running / len(train_loader), val_loss / len(val_loader)))
