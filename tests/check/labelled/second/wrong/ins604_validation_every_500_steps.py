import torch

step = 0
for epoch in range(10):
    model.train()  # expect-one: INS604
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x.cuda()), y.cuda())  # expect-one: INS604
        loss.backward()  # expect-one: INS604
        optimizer.step()
        step += 1
        if step % 500 == 0:
            model.eval()  # expect-one: INS604
            with torch.no_grad():
                val = sum(criterion(model(a.cuda()), b.cuda()).item() for a, b in val_loader)
            print(step, val / len(val_loader))
