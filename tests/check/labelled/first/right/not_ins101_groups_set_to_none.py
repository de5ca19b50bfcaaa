# trap 4: a function drops the gradients group by group
# expect: nothing
import torch


def drop_gradients(optimizer):
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = None


def train(policy, batches):
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    for obs, act in batches:
        drop_gradients(optimizer)
        loss = torch.nn.functional.mse_loss(policy(obs), act)
        loss.backward()
        optimizer.step()
