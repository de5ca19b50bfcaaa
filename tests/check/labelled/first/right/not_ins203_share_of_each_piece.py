# trap 7: pieces of unequal size, each weighted by its share
# expect: nothing
import torch

opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for batch, target in loader:
    opt.zero_grad()
    for sub, wanted in zip(batch.split(48), target.split(48)):
        loss = torch.nn.functional.mse_loss(net(sub), wanted)
        (loss * len(sub) / len(batch)).backward()
    opt.step()
