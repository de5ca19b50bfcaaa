# trap 1: cleared before the epochs and after each gated step; 6,000 batches are 750 full windows
# expect: nothing
import torch

optim = torch.optim.AdamW(lm.parameters(), lr=3e-4)
optim.zero_grad(set_to_none=True)
for i in range(6000):
    tokens = sample(16, 512)
    logits = lm(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    (loss / 8).backward()
    if i % 8 == 7:
        optim.step()
        optim.zero_grad(set_to_none=True)
