import torch.nn.functional as F

from .settings import Settings


def micro_loss(model, tokens, settings: Settings):
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    return loss / settings.micro
