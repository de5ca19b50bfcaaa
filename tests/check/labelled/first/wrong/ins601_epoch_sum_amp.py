import torch
from tqdm.auto import tqdm

scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(50):
    epoch_loss = 0
    for x, y in tqdm(loader):
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        epoch_loss += loss  # expect: INS601
    print(epoch, epoch_loss / len(loader))
