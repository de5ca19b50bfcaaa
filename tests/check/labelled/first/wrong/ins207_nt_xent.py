import torch
from pytorch_metric_learning.losses import NTXentLoss

criterion = NTXentLoss(temperature=0.1)
encoder = make_encoder()
lars = torch.optim.SGD(encoder.parameters(), lr=0.3)

pairs = iter(augmented)
for update in range(10_000):
    lars.zero_grad()
    for _ in range(4):
        views, ids = next(pairs)
        loss = criterion(encoder(views), ids) / 4  # expect-one: INS207
        loss.backward()  # expect-one: INS207
    lars.step()
