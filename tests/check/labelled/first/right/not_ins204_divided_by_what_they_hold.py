# looks like INS204: the option counts the batches beside the first, and the losses know it
# expect: nothing
import torch


def train(model, loader, more):
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    waiting = 0
    for inputs, targets in loader:
        loss = criterion(model(inputs), targets) / (more + 1)
        loss.backward()
        if waiting == more:
            optimizer.step()
            optimizer.zero_grad()
            waiting = 0
        else:
            waiting += 1
