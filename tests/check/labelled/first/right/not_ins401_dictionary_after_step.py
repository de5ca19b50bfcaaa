# looks like INS401: the scheduler of a dictionary, by its interval: per step or per epoch
# expect: nothing
import torch

opt = torch.optim.Adam(net.parameters(), lr=1e-3)
config = {
    "scheduler": torch.optim.lr_scheduler.ExponentialLR(opt, 0.99),
    "interval": "step",
}
for epoch in range(10):
    for x, y in loader:
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        if config["interval"] == "step":
            config["scheduler"].step()
