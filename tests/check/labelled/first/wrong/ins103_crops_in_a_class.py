import torch


class CropTrainer:
    def __init__(self, net, cfg):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters(), lr=cfg.lr)

    def split(self, image, size):
        return [image[..., i : i + size] for i in range(0, image.shape[-1], size)]

    def train_image(self, image, clean, size=128):
        patches = self.split(image, size)
        clean_patches = self.split(clean, size)
        for patch, clean_patch in zip(patches, clean_patches):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.l1_loss(self.net(patch), clean_patch)
            loss.backward()
            self.optimizer.step()  # expect: INS103

    def fit(self, loader):
        for image, clean in loader:
            self.train_image(image, clean)
