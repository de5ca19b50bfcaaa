# looks like INS105: both optimizers have the same parameters, so clearing either one is enough
# expect: nothing
import torch

warm = torch.optim.Adam(net.parameters(), lr=1e-3)
fine = torch.optim.SGD(net.parameters(), lr=1e-4)
for epoch in range(20):
    current = warm if epoch < 5 else fine
    for x, y in loader:
        warm.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        current.step()
