import torch
from torch import nn

segmenter = UNet(3, 2)
adamw = torch.optim.AdamW(segmenter.parameters(), lr=2e-4)
ce = nn.CrossEntropyLoss()

for epoch in range(40):
    for slide, mask in slide_loader:
        tiles = slide.unfold(2, 512, 512).unfold(3, 512, 512)
        mask_tiles = mask.unfold(1, 512, 512).unfold(2, 512, 512)
        for tile, mask_tile in zip(as_list(tiles), as_list(mask_tiles)):
            adamw.zero_grad(set_to_none=True)
            loss = ce(segmenter(tile), mask_tile)
            loss.backward()
            adamw.step()  # expect: INS103
