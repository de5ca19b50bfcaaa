from torch import nn, optim


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(784, 32)
        self.up = nn.Linear(32, 784)

    def forward(self, x):
        return self.up(self.down(x).relu())


ae = Autoencoder()
opt = optim.RMSprop(ae.parameters(), lr=1e-3)
for epoch in range(15):
    for x, _ in digits:
        x = x.flatten(1)
        err = nn.functional.mse_loss(ae(x), x)
        err.backward()
        ae.zero_grad()  # expect: INS102
        opt.step()
