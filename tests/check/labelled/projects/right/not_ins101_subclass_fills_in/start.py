# trap 6: the base class clears nothing; what it leaves out, a subclass in another file does
# expect: nothing
import torch
from classes import Classes


def main(loader):
    Classes(torch.nn.Linear(8, 3), 4).run(loader)
