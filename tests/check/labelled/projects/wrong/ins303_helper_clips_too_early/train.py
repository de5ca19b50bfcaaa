import torch
from amp_tools import finish, scaled_backward
from clearing import clear


def train(model, loader, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            clear(optimizer)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaled_backward(scaler, loss)
            finish(scaler, optimizer, model, max_norm=1.0)
