import torch
from tqdm import tqdm


def train_epoch(net, criterion, optim, data, device):
    net.train()
    bar = tqdm(data, desc="train", leave=False)
    for images, classes in bar:
        images, classes = images.to(device), classes.to(device)
        loss = criterion(net(images), classes)
        loss.backward()  # expect-one: INS101
        optim.step()  # expect-one: INS101
        bar.set_postfix(loss=loss.item())


def main(net, loader):
    optim = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        train_epoch(net, torch.nn.CrossEntropyLoss(), optim, loader, "cuda")
