import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
    loss_function = nn.CrossEntropyLoss()
    optimiser = torch.optim.Adam(net.parameters())
    train_data, _ = load_mnist()

    for epoch in range(args.epochs):
        correct = 0
        for img, lab in train_data:
            optimiser.zero_grad()
            out = net(img)
            loss = loss_function(out, lab)
            optimiser.step()  # expect: INS104
            correct += (out.argmax(1) == lab).sum().item()
        print(epoch, loss.item(), correct)


if __name__ == "__main__":
    main()
