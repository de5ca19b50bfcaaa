import torch


def generator_step(gen, disc, opt_g, opt_d, scaler, z):
    opt_g.zero_grad()
    with torch.autocast("cuda"):
        loss = torch.nn.functional.softplus(-disc(gen(z))).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(opt_d)  # expect-one: INS303
    torch.nn.utils.clip_grad_norm_(gen.parameters(), 1.0)  # expect-one: INS303
    scaler.step(opt_g)
    scaler.update()


def train(gen, disc, noise):
    opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4)
    opt_d = torch.optim.Adam(disc.parameters(), lr=2e-4)
    scaler = torch.amp.GradScaler("cuda")
    for z in noise:
        generator_step(gen, disc, opt_g, opt_d, scaler, z)
