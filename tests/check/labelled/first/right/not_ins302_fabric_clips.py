# looks like INS302: Fabric clips between its backward and the step
# expect: nothing
import torch
from lightning.fabric import Fabric

fabric = Fabric(precision="16-mixed")
model, optimizer = fabric.setup(net, torch.optim.Adam(net.parameters()))
loader = fabric.setup_dataloaders(raw_loader)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    fabric.backward(loss)
    fabric.clip_gradients(model, optimizer, max_norm=1.0)
    optimizer.step()
