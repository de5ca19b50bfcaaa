import torch
from torch import nn

model = Captioner(vocab_size=12000)
opt = torch.optim.Adam(model.parameters(), lr=4e-4)
data = iter(train_stream)

for update in range(20000):
    opt.zero_grad()
    for micro in range(4):
        features, score = next(data)
        loss = nn.functional.mse_loss(model(features), score) / 4
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # expect: INS301
    opt.step()
