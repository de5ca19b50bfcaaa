from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor


def make_loader(split):
    return DataLoader(MNIST(".", train=split == "train", transform=ToTensor()), batch_size=64)
