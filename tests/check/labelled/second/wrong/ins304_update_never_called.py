import torch


class Classifier:
    def __init__(self, backbone):
        self.backbone = backbone
        self.opt = torch.optim.SGD(backbone.parameters(), lr=0.1, momentum=0.9)
        self.grad_scaler = torch.amp.GradScaler("cuda")

    def optimise(self, loss):
        self.opt.zero_grad()
        self.grad_scaler.scale(loss).backward()
        self.grad_scaler.unscale_(self.opt)
        torch.nn.utils.clip_grad_norm_(self.backbone.parameters(), 2.0)
        self.grad_scaler.step(self.opt)  # expect: INS304

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for image, label in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = torch.nn.functional.cross_entropy(self.backbone(image), label)
                self.optimise(loss)
