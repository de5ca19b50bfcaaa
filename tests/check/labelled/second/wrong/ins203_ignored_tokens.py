import torch
import torch.nn.functional as F

ACCUM = 8


def sft(model, batches, updates, lr=2e-5):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for update in range(updates):
        optimizer.zero_grad()
        for _ in range(ACCUM):
            batch = next(batches)
            logits = model(batch["input_ids"], attention_mask=batch["attention_mask"])
            labels = batch["labels"].masked_fill(batch["attention_mask"] == 0, -100)
            loss = F.cross_entropy(  # expect-one: INS203
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
            )
            loss = loss / ACCUM  # expect-one: INS203
            loss.backward()  # expect-one: INS203
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
