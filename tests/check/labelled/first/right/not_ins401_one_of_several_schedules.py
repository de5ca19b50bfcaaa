# looks like INS401: which schedule it is is chosen by name, and the others lose nothing
# expect: nothing
import torch
from transformers import get_linear_schedule_with_warmup


def make_schedule(optimizer, name, parts):
    if name == "warmup":
        return get_linear_schedule_with_warmup(optimizer, parts // 10, parts)
    if name == "linear":
        return get_linear_schedule_with_warmup(optimizer, 0, parts)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1)


def main(args, model, parts):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = make_schedule(optimizer, args.schedule, len(parts))
    for part in range(len(parts)):
        schedule.step()
        for x, y in parts[part]:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
