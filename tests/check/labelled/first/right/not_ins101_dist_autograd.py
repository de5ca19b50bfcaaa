# trap 16: each distributed context has its own gradients, so nothing is cleared
# expect: nothing
import torch
import torch.distributed.autograd as dist_autograd
from torch.distributed.optim import DistributedOptimizer


def run(remote_model, loader):
    opt = DistributedOptimizer(torch.optim.SGD, remote_model.parameter_rrefs(), lr=0.05)
    for x, y in loader:
        with dist_autograd.context() as context_id:
            loss = torch.nn.functional.cross_entropy(remote_model(x), y)
            dist_autograd.backward(context_id, [loss])
            opt.step(context_id)
