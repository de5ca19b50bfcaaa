# trap 3: the modulo is for checkpoints, EMA and the log
# expect: nothing
import torch
from tqdm import tqdm

for step, (x, y) in enumerate(tqdm(loader), start=resumed + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        ema.update(net)
    if step % 100 == 0:
        print(step, loss.item())
    if step % 1000 == 0:
        torch.save(net.state_dict(), f"step{step}.pt")
