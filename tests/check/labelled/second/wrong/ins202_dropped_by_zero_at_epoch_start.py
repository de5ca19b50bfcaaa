import torch
from torch import nn


class Experiment:
    def __init__(self, cfg, net):
        self.cfg = cfg
        self.net = net
        self.bce = nn.BCEWithLogitsLoss()
        self.opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)

    def epoch(self, loader):
        self.net.train()
        self.opt.zero_grad()
        for idx, (scan, finding) in enumerate(loader):
            loss = self.bce(self.net(scan), finding)
            (loss / self.cfg.accum).backward()  # expect-one: INS202
            if idx % self.cfg.accum == self.cfg.accum - 1:  # expect-one: INS202
                self._update()  # expect-one: INS202

    def _update(self):
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.opt.step()  # expect-one: INS202
        self.opt.zero_grad()

    def run(self, loader):
        for _ in range(self.cfg.epochs):
            self.epoch(loader)
