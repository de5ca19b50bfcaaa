import torch


def tile_pass(model, optimizers, tile, mask, count):
    for optimizer in optimizers:
        optimizer.zero_grad()  # expect: INS102
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(tile), mask)
    (loss / count).backward()


def train(model, slides):
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01)]
    for tiles, masks in slides:
        for tile, mask in zip(tiles, masks):
            tile_pass(model, optimizers, tile, mask, len(tiles))
        for optimizer in optimizers:
            optimizer.step()
