# looks like INS202: the counter is never reset, so a window may span two epochs and is full
# expect: nothing
import torch


def fit(net, loader, epochs, window=4):
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
    global_step = 0
    for _ in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y) / window
            loss.backward()
            global_step += 1
            if global_step % window == 0:
                opt.step()
                opt.zero_grad()
