import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank = dist.get_rank()
model = DDP(ViT().to(rank), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
feed = iter(sharded_loader)
accumulate = 8

for update in range(50_000):
    optimizer.zero_grad(set_to_none=True)
    for micro in range(accumulate):
        x, y = next(feed)
        loss = torch.nn.functional.cross_entropy(model(x.to(rank)), y.to(rank))  # expect-one: INS603
        (loss / accumulate).backward()  # expect-one: INS603
    optimizer.step()
