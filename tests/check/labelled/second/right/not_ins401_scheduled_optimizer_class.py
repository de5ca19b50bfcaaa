# trap 5: step_and_update_lr sets the rate and steps, in one call
# expect: nothing
import torch
import torch.nn.functional as F


class ScheduledOptim:
    def __init__(self, optimizer, d_model, warmup):
        self._optimizer = optimizer
        self.d_model = d_model
        self.warmup = warmup
        self.n_steps = 0

    def zero_grad(self):
        self._optimizer.zero_grad()

    def step_and_update_lr(self):
        self.n_steps += 1
        rate = self.d_model**-0.5 * min(self.n_steps**-0.5, self.n_steps * self.warmup**-1.5)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()


def train(transformer, loader, epochs):
    adam = torch.optim.Adam(transformer.parameters(), betas=(0.9, 0.98), eps=1e-9)
    optimizer = ScheduledOptim(adam, 512, 4000)
    for _ in range(epochs):
        for source, target in loader:
            optimizer.zero_grad()
            logits = transformer(source, target[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
            loss.backward()
            optimizer.step_and_update_lr()
