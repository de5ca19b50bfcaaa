# looks like INS103: the dataset is made of patches, and a batch of them is one window
# expect: nothing
import torch
from torch.utils.data import DataLoader


def main(patch_dataset, net):
    patch_loader = DataLoader(patch_dataset, batch_size=32, shuffle=True, drop_last=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for epoch in range(100):
        for patches, masks in patch_loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(net(patches), masks)
            loss.backward()
            optimizer.step()
