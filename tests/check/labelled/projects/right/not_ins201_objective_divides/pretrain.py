# trap 7: another file divides by the number of micro-batches
# expect: nothing
import torch
from lm import optim
from lm.objective import micro_loss
from lm.settings import Settings


def pretrain(model, batches, settings: Settings):
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    for _ in range(settings.updates):
        optim.open_window(optimizer)
        for _ in range(settings.micro):
            micro_loss(model, next(batches), settings).backward()
        optim.close_window(optimizer, model, settings)
