# trap 8: each part is added to a total of its own, and the totals go backward
# expect: nothing
import torch.nn.functional as F


def train(model, optimizer, images):
    for image in images:
        depth_total, box_total = 0.0, 0.0
        for crop, depth, box in image.crops():
            depth_out, box_out = model(crop)
            depth_total = depth_total + F.l1_loss(depth_out, depth)
            box_total = box_total + F.smooth_l1_loss(box_out, box)
        optimizer.zero_grad()
        (depth_total + 0.5 * box_total).backward()
        optimizer.step()
