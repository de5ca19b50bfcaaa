# looks like INS104: two keys that are not known name two optimizers of one dict
# expect: nothing
import torch


class CrossDomain:
    def __init__(self, encoder, embedders, criterion):
        self.encoder, self.embedders, self.criterion = encoder, embedders, criterion
        self.encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
        self.optimizers = {
            "source": torch.optim.SGD(embedders["source"].parameters(), lr=0.1),
            "target": torch.optim.SGD(embedders["target"].parameters(), lr=0.1),
        }

    def train_epoch(self, loader, here):
        there = "source" if here == "target" else "target"
        optimizer = self.optimizers[here]
        other_optimizer = self.optimizers[there]
        for words, wanted in loader:
            self.encoder.zero_grad()
            self.embedders[here].zero_grad()
            self.embedders[there].zero_grad()
            hidden = self.encoder(self.embedders[there](words))
            loss = self.criterion(self.embedders[here](hidden), wanted)
            loss.backward()
            self.encoder_optimizer.step()
            optimizer.step()
            other_optimizer.step()
