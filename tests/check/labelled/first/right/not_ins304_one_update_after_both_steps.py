# trap 10: two optimizers, two steps through one scaler, one update
# expect: nothing
import torch
import torch.nn.functional as F

scaler = torch.amp.GradScaler("cuda")
opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(disc.parameters(), lr=2e-4)
for real in loader:
    z = torch.randn(len(real), 64, device="cuda")
    with torch.autocast("cuda"):
        fake = gen(z)
        loss_d = F.softplus(disc(fake.detach())).mean() + F.softplus(-disc(real)).mean()
    opt_d.zero_grad()
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    with torch.autocast("cuda"):
        loss_g = F.softplus(-disc(fake)).mean()
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    scaler.update()
