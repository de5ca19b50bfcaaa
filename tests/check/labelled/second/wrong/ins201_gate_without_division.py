import torch
import torch.nn.functional as F

grad_accum = 4
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
stream = iter(endless_loader)

optimizer.zero_grad()
for step in range(1, 4001):
    images, labels = next(stream)
    logits = model(images.cuda(non_blocking=True))
    loss = F.cross_entropy(logits, labels.cuda(non_blocking=True))  # expect-one: INS201
    loss.backward()  # expect-one: INS201
    if step % grad_accum == 0:
        optimizer.step()
        optimizer.zero_grad()
    if step % 400 == 0:
        print(f"{step}: {loss.item():.3f}")
