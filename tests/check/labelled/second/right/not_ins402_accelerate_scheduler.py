# trap 2: a prepared scheduler skips the micro-steps by itself
# expect: nothing
from accelerate import Accelerator
from transformers import get_cosine_schedule_with_warmup
import torch


class Finetuner:
    def __init__(self, model, loader, updates):
        self.accelerator = Accelerator(gradient_accumulation_steps=8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        scheduler = get_cosine_schedule_with_warmup(optimizer, 100, updates)
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            model, optimizer, loader, scheduler
        )

    def epoch(self):
        self.model.train()
        for batch in self.loader:
            with self.accelerator.accumulate(self.model):
                loss = self.model(**batch).loss
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
