from tests.check.execute.run import value

CLASS = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        self.norm = torch.nn.BatchNorm2d(3)
class Net(torch.nn.Module):
    def __init__(self):
        self.block = {part}
v = Net()
"""


def test_batch_normalisation_in_the_class_or_beside_it():
    assert value(CLASS.format(part="Block()")).batchnorm
    assert value(CLASS.format(part="torch.nn.BatchNorm1d(2)")).batchnorm
    assert value(CLASS.format(part="torch.nn.Linear(1, 1)")).batchnorm is None


def test_parameters_in_the_class():
    assert value(CLASS.format(part="torch.nn.Linear(1, 1)")).trainable
    assert value(CLASS.format(part="torch.nn.ReLU()")).trainable is None


def test_models_that_do_the_same_in_both_modes():
    plain = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        self.a = torch.nn.{}(2)
v = Net()
"""
    assert value(plain.format("Linear")).modeless
    assert not value(plain.format("Dropout")).modeless
