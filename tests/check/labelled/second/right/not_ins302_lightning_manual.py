# looks like INS302: manual optimization clips between manual_backward and step
# expect: nothing
import lightning as L
import torch
import torch.nn.functional as F


class LitGAN(L.LightningModule):
    def __init__(self, G, D):
        super().__init__()
        self.automatic_optimization = False
        self.G, self.D = G, D

    def training_step(self, batch, batch_idx):
        opt_g, opt_d = self.optimizers()
        fake = self.G(torch.randn(len(batch), 64, device=self.device))

        opt_d.zero_grad()
        d_loss = F.softplus(-self.D(batch)).mean() + F.softplus(self.D(fake.detach())).mean()
        self.manual_backward(d_loss)
        self.clip_gradients(opt_d, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        opt_d.step()

        opt_g.zero_grad()
        self.manual_backward(F.softplus(-self.D(fake)).mean())
        self.clip_gradients(opt_g, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        opt_g.step()

    def configure_optimizers(self):
        g = torch.optim.Adam(self.G.parameters(), lr=1e-4)
        d = torch.optim.Adam(self.D.parameters(), lr=4e-4)
        return [g, d]
