# trap 5: a wrapper with two steps of its own; each has its backward, and both clear
# expect: nothing
import torch
from sam import SAM

sam = SAM(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    sam.first_step(zero_grad=True)
    torch.nn.functional.cross_entropy(net(x), y).backward()
    sam.second_step(zero_grad=True)
