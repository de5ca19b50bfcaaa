import torch
import torch.nn as nn

table = nn.EmbeddingBag(1_000_000, 64, sparse=True)
tower = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
sparse_opt = torch.optim.SparseAdam(table.parameters(), lr=1e-3)
dense_opt = torch.optim.Adam(tower.parameters(), lr=1e-3)

for ids, offsets, clicked in clicks:
    dense_opt.zero_grad()  # expect-one: INS105
    dense_opt.zero_grad()  # expect-one: INS105
    logit = tower(table(ids, offsets)).squeeze(1)
    loss = nn.functional.binary_cross_entropy_with_logits(logit, clicked)
    loss.backward()  # expect-one: INS101|INS105
    dense_opt.step()
    sparse_opt.step()  # expect-one: INS101|INS105
