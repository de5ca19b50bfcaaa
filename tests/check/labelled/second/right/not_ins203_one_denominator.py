# trap 7: the token count of the whole window is known before its first backward
# expect: nothing
import torch
import torch.nn as nn


class SFT:
    def __init__(self, model, lr=1e-5):
        self.model = model
        self.ce = nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)

    def update(self, micro_batches):
        num_items = sum((mb["labels"] != -100).sum() for mb in micro_batches)
        self.opt.zero_grad()
        for mb in micro_batches:
            logits = self.model(mb["input_ids"])
            loss = self.ce(logits.flatten(0, 1), mb["labels"].flatten()) / num_items
            loss.backward()
        self.opt.step()

    def train(self, windows):
        for micro_batches in windows:
            self.update(micro_batches)
