class Attack:
    def __init__(self, model, size=0.3):
        self.model = model
        self.size = size
        self.kept = {}

    def keep(self):
        for name, weight in self.model.named_parameters():
            self.kept[name] = weight.grad.clone()

    def put_back(self):
        for name, weight in self.model.named_parameters():
            weight.grad = self.kept[name]
