# trap 5: a hand-written wrapper unscales once, on whichever path it takes
# expect: nothing
import torch


class NativeScalerWithGradNorm:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, update_grad=True):
        self._scaler.scale(loss).backward()
        if not update_grad:
            return None
        self._scaler.unscale_(optimizer)
        if clip_grad is not None:
            norm = torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
        else:
            norm = torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()
        self._scaler.step(optimizer)
        self._scaler.update()
        return norm


def train_one_epoch(model, loader, optimizer, loss_scaler, criterion):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        loss_scaler(loss, optimizer, clip_grad=3.0, parameters=list(model.parameters()))


def main(model, loader, criterion):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_scaler = NativeScalerWithGradNorm()
    for _ in range(300):
        train_one_epoch(model, loader, optimizer, loss_scaler, criterion)
