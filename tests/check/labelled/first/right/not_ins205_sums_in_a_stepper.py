# looks like INS205: sums over items and over patches, divided by their number
# expect: nothing
import instep
import torch.nn.functional as F

stepper = instep.Stepper(model, optimizer)
for window in stepper.windows(loader, size=args.accum):
    for x, y in window:
        loss = F.cross_entropy(model(x), y, reduction="sum") / args.micro_batch_size
        window.backward(loss, items=args.micro_batch_size)
for window in stepper.windows(loader, size=args.accum):
    for image, target in window:
        loss = 0.0
        for patch, part in zip(image.split(256, -1), target.split(256, -1), strict=True):
            loss = loss + F.mse_loss(model(patch), part)
        window.backward(loss / args.num_patches, items=len(image))
