import torch
import torch.nn.functional as F

n_micro = 8
grad_scaler = torch.amp.GradScaler("cuda")
opt = torch.optim.Adam(detector.parameters(), lr=1e-4)

batches = iter(forever(loader))
for step in range(90_000):
    for micro in range(n_micro):
        image, boxes = next(batches)
        with torch.autocast("cuda"):
            loss = F.smooth_l1_loss(detector(image), boxes) / n_micro  # expect-one: INS205
        grad_scaler.scale(loss / n_micro).backward()  # expect-one: INS205
    grad_scaler.step(opt)
    grad_scaler.update()
    opt.zero_grad()
