import torch
from torch import nn
from torchvision.models import vgg16


def finetune(loader, classes):
    net = vgg16(weights="DEFAULT")
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)  # expect-one: INS503
    net.classifier = nn.Sequential(nn.Linear(25_088, 256), nn.ReLU(), nn.Linear(256, classes))  # expect-one: INS503
    net.cuda()
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        loss.backward()
        opt.step()
