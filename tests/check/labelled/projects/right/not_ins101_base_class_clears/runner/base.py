from runner.stepping import advance


class Task:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer

    def on_batch_start(self):
        self.optimizer.zero_grad()

    def run(self, loader, epochs):
        for _ in range(epochs):
            for batch in loader:
                self.on_batch_start()
                self.learn(batch)
                advance(self.optimizer, self.net)
