import torch


class Runner:
    def __init__(self, model, criterion, optimizer, accum_iter):
        self.model = model
        self.criterion = criterion
        self.optimizer = optimizer
        self.accum_iter = accum_iter
        self.iteration = 0

    def run(self, loader, epochs):
        self.optimizer.zero_grad()
        for epoch in range(epochs):
            shown = 0.0
            for sample in loader:
                self.iteration += 1
                need_update = self.iteration % self.accum_iter == 0
                out = self.model(sample["image"])
                loss = self.criterion(out, sample["label"])  # expect-one: INS201
                shown += loss.item() / self.accum_iter
                loss.backward()  # expect-one: INS201
                if need_update:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            print(epoch, shown)
