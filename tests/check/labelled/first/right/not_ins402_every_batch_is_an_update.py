# trap 14: there is no window; scheduler, EMA and progress bar step per batch
# expect: nothing
import torch
from tqdm import tqdm

optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=500)
for epoch in range(50):
    for step, images in enumerate(tqdm(loader)):
        noise = torch.randn_like(images)
        t = torch.randint(0, 1000, (len(images),))
        loss = torch.nn.functional.mse_loss(unet(add_noise(images, noise, t), t), noise)
        loss.backward()
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        ema.step(unet.parameters())
        if step % 500 == 0:
            print(lr_scheduler.get_last_lr())
