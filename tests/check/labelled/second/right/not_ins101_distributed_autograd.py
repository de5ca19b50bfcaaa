# trap 16: distributed autograd keeps gradients per context, so nothing is cleared
# expect: nothing
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer


def run_trainer(model, batches, epochs):
    opt = DistributedOptimizer(torch.optim.SGD, model.parameter_rrefs(), lr=0.05)
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(epochs):
        for data, target in batches:
            with dist_autograd.context() as context_id:
                output = model(data)
                loss = criterion(output, target)
                dist_autograd.backward(context_id, [loss])
                opt.step(context_id)


def main(model, batches):
    rpc.init_rpc("trainer", rank=0, world_size=2)
    run_trainer(model, batches, 5)
    rpc.shutdown()
