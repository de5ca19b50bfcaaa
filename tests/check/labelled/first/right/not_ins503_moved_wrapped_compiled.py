# looks like INS503: moving, compiling and wrapping keep the parameters
# expect: nothing
import torch
from torch.nn.parallel import DistributedDataParallel

model = ResNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = model.to("cuda")
model = torch.compile(model)
model = DistributedDataParallel(model)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
