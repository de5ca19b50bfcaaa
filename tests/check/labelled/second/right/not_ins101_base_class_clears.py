# trap 6: the base class clears, the subclass goes backward, another method steps
# expect: nothing
import torch


class BaseModel:
    def __init__(self):
        self.optimizers = []

    def clear(self):
        for o in self.optimizers:
            o.zero_grad()

    def optimize_parameters(self):
        self.forward()
        self.clear()
        self.backward()
        self.apply()

    def apply(self):
        for o in self.optimizers:
            o.step()


class ColorModel(BaseModel):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.optimizers.append(torch.optim.Adam(net.parameters(), lr=2e-4))

    def set_input(self, batch):
        self.grey, self.colour = batch

    def forward(self):
        self.out = self.net(self.grey)

    def backward(self):
        self.loss = torch.nn.functional.l1_loss(self.out, self.colour)
        self.loss.backward()


def main(net, loader):
    model = ColorModel(net)
    for batch in loader:
        model.set_input(batch)
        model.optimize_parameters()
