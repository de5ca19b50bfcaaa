import torch
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=4)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for x, y in loader:
    with accelerator.accumulate(net):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        accelerator.backward(loss)  # expect-one: INS101
        optimizer.step()  # expect-one: INS101
