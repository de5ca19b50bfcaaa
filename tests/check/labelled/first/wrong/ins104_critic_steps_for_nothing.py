import torch
import torch.nn.functional as F


def warm_up(generator, critic, pairs, lr):
    opt_gen = torch.optim.Adam(generator.parameters(), lr=lr)
    opt_critic = torch.optim.Adam(critic.parameters(), lr=lr)
    for low, high in pairs:
        opt_gen.zero_grad()
        opt_critic.zero_grad()
        fake = generator(low)
        pixel_loss = F.l1_loss(fake, high)
        pixel_loss.backward()
        opt_gen.step()
        opt_critic.step()  # expect: INS104
