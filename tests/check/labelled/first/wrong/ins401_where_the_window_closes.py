import torch

opt = torch.optim.Adam(model.parameters(), lr=1e-4)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=2500)
opt.zero_grad()
for i in range(10_000):
    x, y = next(batches)
    (torch.nn.functional.l1_loss(model(x), y) / 4).backward()
    if (i + 1) % 4 == 0:
        cosine.step()  # expect: INS401
        opt.step()
        opt.zero_grad()
