import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

scaler = torch.amp.GradScaler("cuda")
for mel, wave in clips:
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cuda"):
        loss = torch.nn.functional.l1_loss(vocoder(mel), wave)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)  # expect-one: INS307
    clip_grad_norm_(vocoder.parameters(), 10.0)
    scaler.unscale_(opt)  # expect-one: INS307
    clip_grad_value_(vocoder.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
