import torch
from engine.classifier import ClassifierTrainer

from data import make_loader


def main():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    trainer = ClassifierTrainer(net, lr=0.05)
    trainer.fit(make_loader("train"), epochs=10)


if __name__ == "__main__":
    main()
