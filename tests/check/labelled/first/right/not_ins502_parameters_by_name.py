# looks like INS502: two groups, with and without decay, are all parameters together
# expect: nothing
import torch

model = Transformer()
decay, rest = [], []
for name, p in model.named_parameters():
    (rest if p.ndim < 2 or name.endswith("bias") else decay).append(p)
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-4
)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
