# trap 5: the engine counts micro-steps itself; its step is called every time
# expect: nothing
import deepspeed
import torch


def main(args, net, dataset):
    engine, optimizer, loader, _ = deepspeed.initialize(
        args=args, model=net, model_parameters=net.parameters(), training_data=dataset
    )
    for epoch in range(args.epochs):
        for x, y in loader:
            x, y = x.to(engine.device), y.to(engine.device)
            loss = torch.nn.functional.cross_entropy(engine(x), y)
            engine.backward(loss)
            engine.step()
