import torch


def pretrain(model, sample_batch, lr=6e-4):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model.train()
    for it in range(4000):
        tokens, targets = sample_batch()
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        (loss / 8).backward()  # expect-one: INS101
        if (it + 1) % 8 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # expect-one: INS101
