import torch
import torch.nn.functional as F


def train_gan(G, D, loader, steps, z_dim=128):
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=4e-4, betas=(0.0, 0.9))
    scaler = torch.amp.GradScaler("cuda")
    feed = iter(loader)
    for step in range(steps):
        real = next(feed).cuda()
        z = torch.randn(real.size(0), z_dim, device="cuda")

        opt_d.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            fake = G(z)
            d_loss = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake.detach())).mean()
        d_loss.backward()  # expect: INS306
        scaler.step(opt_d)

        opt_g.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            g_loss = -D(G(z)).mean()
        scaler.scale(g_loss).backward()
        scaler.step(opt_g)
        scaler.update()
