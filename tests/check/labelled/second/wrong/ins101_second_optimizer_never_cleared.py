import torch
from torch import nn

encoder = nn.GRU(40, 256, batch_first=True)
head = nn.Linear(256, 30)
encoder_opt = torch.optim.Adam(encoder.parameters(), lr=1e-4)
head_opt = torch.optim.Adam(head.parameters(), lr=1e-3)
ce = nn.CrossEntropyLoss()

for epoch in range(12):
    for frames, label in train_loader:
        head_opt.zero_grad()  # expect-one: INS105
        states, _ = encoder(frames)
        loss = ce(head(states[:, -1]), label)
        loss.backward()  # expect-one: INS101|INS105
        encoder_opt.step()  # expect-one: INS101|INS105
        head_opt.step()
