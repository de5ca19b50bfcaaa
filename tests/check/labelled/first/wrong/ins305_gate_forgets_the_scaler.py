import torch


class Pretrainer:
    def __init__(self, model, micro):
        self.model, self.micro = model, micro
        self.opt = torch.optim.AdamW(model.parameters(), lr=6e-4)
        self.scaler = torch.amp.GradScaler("cuda")

    def close(self):
        self.opt.step()  # expect: INS305
        self.opt.zero_grad(set_to_none=True)

    def run(self, batches, updates):
        for _ in range(updates):
            for _ in range(self.micro):
                x, y = next(batches)
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = torch.nn.functional.cross_entropy(self.model(x), y)
                self.scaler.scale(loss / self.micro).backward()
            self.close()
