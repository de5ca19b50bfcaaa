# looks like INS603: the sync flag of DDP is set by hand for the last micro-batch
# expect: nothing
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model, device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
grad_accum = 5

for it in range(600_000):
    for micro_step in range(grad_accum):
        model.require_backward_grad_sync = micro_step == grad_accum - 1
        x, y = get_batch("train")
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / grad_accum
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
