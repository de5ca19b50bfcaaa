# trap 7: uneven chunks, each weighted by its share of the batch
# expect: nothing
import torch


def train(net, loader, chunk=24):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    criterion = torch.nn.MSELoss()
    for x, y in loader:
        optimizer.zero_grad()
        for sub_x, sub_y in zip(x.split(chunk), y.split(chunk)):
            loss = criterion(net(sub_x), sub_y) * (len(sub_x) / len(x))
            loss.backward()
        optimizer.step()
