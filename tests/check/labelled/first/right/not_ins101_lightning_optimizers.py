# looks like INS101: manual optimization, the optimizer comes from the module
# expect: nothing
import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.layer = torch.nn.Linear(28, 10)

    def training_step(self, batch, batch_idx):
        x, y = batch
        opt = self.optimizers()
        loss = torch.nn.functional.cross_entropy(self.layer(x), y)
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.layer.parameters(), lr=1e-3)
