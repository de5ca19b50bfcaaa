import torch.nn.functional as F


def train(model, optimizer, loader):
    total, box_total = 0.0, 0.0
    for image, depth, box in loader:
        depth_out, box_out = model(image)
        depth_loss = F.l1_loss(depth_out, depth)
        box_loss = F.smooth_l1_loss(box_out, box)
        loss = depth_loss + 0.5 * box_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        box_total += box_loss  # expect: INS601
    return total, box_total
