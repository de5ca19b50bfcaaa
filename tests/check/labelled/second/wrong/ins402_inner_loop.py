import torch


def pretrain(model, feed, updates, micro_per_update=8):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)
    for update in range(updates):
        optimizer.zero_grad()
        for _ in range(micro_per_update):
            views, target = next(feed)
            loss = torch.nn.functional.mse_loss(model(views), target)
            (loss / micro_per_update).backward()
            cosine.step()  # expect: INS402
        optimizer.step()
        if update % 100 == 0:
            print(update, loss.item(), cosine.get_last_lr())
