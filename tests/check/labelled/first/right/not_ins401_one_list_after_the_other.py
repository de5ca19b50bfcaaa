# looks like INS401: optimizers and schedulers in two lists, in the right order
# expect: nothing
import torch
from torch.optim.lr_scheduler import StepLR

parts = [encoder, decoder]
optims = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in parts]
scheds = [StepLR(optim, step_size=1000) for optim in optims]
for x in loader:
    for optim in optims:
        optim.zero_grad()
    loss = torch.nn.functional.mse_loss(decoder(encoder(x)), x)
    loss.backward()
    for optim in optims:
        optim.step()
    for sched in scheds:
        sched.step()
