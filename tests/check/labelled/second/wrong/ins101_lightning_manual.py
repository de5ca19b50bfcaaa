import lightning as L
import torch
import torch.nn.functional as F


class LitClassifier(L.LightningModule):
    def __init__(self, net, lr=1e-3):
        super().__init__()
        self.automatic_optimization = False
        self.net = net
        self.lr = lr

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.manual_backward(loss)  # expect-one: INS101
        opt.step()  # expect-one: INS101
        self.log("train_loss", loss.detach())

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=self.lr)
