import torch


class Accumulator:
    def __init__(self, model):
        self.model = model
        self.optim = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.count = 0

    def add(self, images, labels):
        loss = torch.nn.functional.cross_entropy(self.model(images), labels) / 4
        loss.backward()
        self.count += 1
        if self.count == 4:  # expect-one: INS204
            self.optim.step()  # expect-one: INS204
            self.optim.zero_grad()
            self.count = 1  # expect-one: INS204


def train(model, loader, epochs):
    accumulator = Accumulator(model)
    for _ in range(epochs):
        for images, labels in loader:
            accumulator.add(images, labels)
