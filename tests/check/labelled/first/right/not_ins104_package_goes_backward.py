# looks like INS104: the model of a package is asked to go backward by itself
# expect: nothing
import torch
from memories import Remembering


class Music:
    def __init__(self):
        self.model = Remembering(dim=8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, batches):
        self.model.train()
        for batch in batches:
            loss = self.model(batch, replay_backprop=True)
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(loss.item())
