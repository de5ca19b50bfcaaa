import torch


def scaled_backward(scaler, loss):
    scaler.scale(loss).backward()


def finish(scaler, optimizer, model, max_norm):
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # expect: INS303
    scaler.step(optimizer)
    scaler.update()
