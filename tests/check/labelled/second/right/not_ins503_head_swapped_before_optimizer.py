# looks like INS503: the head is replaced first, the optimizer built afterwards
# expect: nothing
import torch
import torchvision
from torch import nn


class Transfer:
    def __init__(self, classes):
        self.model = torchvision.models.resnet18(weights="DEFAULT")
        self.replace_head(classes)
        self.configure()

    def configure(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def replace_head(self, classes):
        self.model.fc = nn.Linear(self.model.fc.in_features, classes)

    def fit(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
