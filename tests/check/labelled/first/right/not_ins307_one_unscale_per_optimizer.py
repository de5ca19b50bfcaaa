# looks like INS307: two unscales before one update, for two optimizers
# expect: nothing
import torch

scaler = torch.amp.GradScaler("cuda")
opts = {
    "encoder": torch.optim.AdamW(encoder.parameters(), lr=1e-5),
    "decoder": torch.optim.AdamW(decoder.parameters(), lr=1e-4),
}
for x, y in loader:
    for opt in opts.values():
        opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(decoder(encoder(x)), y)
    scaler.scale(loss).backward()
    for opt in opts.values():
        scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
    torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
    for opt in opts.values():
        scaler.step(opt)
    scaler.update()
