import torch
import torch.nn.functional as F


def train_step(model, batch, optimizer):
    optimizer.zero_grad()
    x, y = batch
    loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
    loss.backward()
    optimizer.step()  # expect-one: INS104
    return loss.item()


def train(model, loader, lr=0.05, epochs=30):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(epochs):
        running = 0.0
        for batch in loader:
            running += train_step(model, batch, optimizer)
            optimizer.step()  # expect-one: INS104
        print(epoch, running / len(loader))
