# trap 10: one scaler, two optimizers, two unscales, two steps, one update
# expect: nothing
import torch
import torch.nn.functional as F


def iteration(G, D, opt_g, opt_d, scaler, low, high):
    with torch.autocast("cuda", dtype=torch.float16):
        fake = G(low)
        d_loss = F.softplus(-D(high)).mean() + F.softplus(D(fake.detach())).mean()
    opt_d.zero_grad()
    scaler.scale(d_loss).backward()
    scaler.unscale_(opt_d)
    torch.nn.utils.clip_grad_norm_(D.parameters(), 1.0)
    scaler.step(opt_d)

    with torch.autocast("cuda", dtype=torch.float16):
        g_loss = F.l1_loss(fake, high) + 1e-3 * F.softplus(-D(fake)).mean()
    opt_g.zero_grad()
    scaler.scale(g_loss).backward()
    scaler.unscale_(opt_g)
    torch.nn.utils.clip_grad_norm_(G.parameters(), 1.0)
    scaler.step(opt_g)
    scaler.update()


def train(G, D, loader):
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-4)
    opt_d = torch.optim.Adam(D.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for low, high in loader:
        iteration(G, D, opt_g, opt_d, scaler, low, high)
