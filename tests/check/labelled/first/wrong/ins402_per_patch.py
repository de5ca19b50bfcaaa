import torch
import torch.nn.functional as F

opt = torch.optim.AdamW(unet3d.parameters(), lr=1e-3)
poly = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=len(volumes) * epochs, power=0.9)
for epoch in range(epochs):
    for volume, mask in volumes:
        opt.zero_grad()
        patches, mask_patches = volume.chunk(8, dim=2), mask.chunk(8, dim=2)
        for patch, mask_patch in zip(patches, mask_patches):
            loss = F.binary_cross_entropy_with_logits(unet3d(patch), mask_patch, reduction="sum")
            (loss / mask.numel()).backward()
            poly.step()  # expect: INS402
        opt.step()
