import torch
from torch import nn

G, D = Generator(100), Discriminator()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

for epoch in range(100):
    for real, _ in dataloader:
        n = real.size(0)
        ones, zeros = torch.ones(n, 1), torch.zeros(n, 1)

        opt_g.zero_grad()  # expect: INS105
        fake = G(torch.randn(n, 100))
        d_loss = bce(D(real), ones) + bce(D(fake.detach()), zeros)
        d_loss.backward()
        opt_d.step()

        opt_g.zero_grad()
        g_loss = bce(D(fake), ones)
        g_loss.backward()
        opt_g.step()
    print(epoch, d_loss.item(), g_loss.item())
