# trap 8: `+=` builds one loss out of three terms
# expect: nothing
import torch

opt = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in loader:
    out, hidden = net(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    loss += 1e-4 * hidden.abs().mean()
    for w in net.parameters():
        loss += 1e-5 * w.pow(2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
