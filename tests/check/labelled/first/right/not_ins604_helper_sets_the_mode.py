# trap 15: the function that prepares an epoch sets train mode
# expect: nothing
import torch


def prepare(model, sampler, epoch):
    sampler.set_epoch(epoch)
    model.train()


def run(model, sampler, loader, valid, epochs):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        prepare(model, sampler, epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        model.eval()
        report(model, valid)
