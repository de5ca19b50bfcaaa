from torch.nn.utils import clip_grad_norm_


def open_window(optimizer):
    optimizer.zero_grad(set_to_none=True)


def close_window(optimizer, model, settings):
    clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
