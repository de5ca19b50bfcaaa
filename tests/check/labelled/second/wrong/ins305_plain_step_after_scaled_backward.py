import torch
from torch import nn

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4), 6).cuda()
head = nn.Linear(256, 2).cuda()
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-4)
scaler = torch.amp.GradScaler("cuda")

for epoch in range(4):
    for tokens, label in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(head(model(tokens.cuda())[0]), label.cuda())
        scaler.scale(loss).backward()
        optimizer.step()  # expect: INS305
        scaler.update()
