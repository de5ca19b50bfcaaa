# trap 13: a nested function and a bound method are the closures of two optimizers
# expect: nothing
import torch


def style_transfer(image, content, style, features, steps=300):
    image = image.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([image])
    run = [0]
    while run[0] <= steps:

        def closure():
            optimizer.zero_grad()
            loss = content(features(image)) + 1e6 * style(features(image))
            loss.backward()
            run[0] += 1
            return loss

        optimizer.step(closure)
    return image.detach()


class Fit:
    def __init__(self, net, x, y):
        self.net, self.x, self.y = net, x, y
        self.opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=20)

    def evaluate(self):
        self.opt.zero_grad()
        loss = torch.nn.functional.mse_loss(self.net(self.x), self.y)
        loss.backward()
        return loss

    def run(self, rounds):
        for _ in range(rounds):
            self.opt.step(self.evaluate)
