import lightning as L
import torch

fabric = L.Fabric(accelerator="gpu", devices=2)
fabric.launch()
model = MyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)

for update in range(4000):
    optimizer.zero_grad()
    for micro in range(8):
        x, y = next(stream)
        with fabric.no_backward_sync(model, enabled=micro < 7):
            loss = torch.nn.functional.cross_entropy(model(x), y)  # expect-one: INS201
            fabric.backward(loss)  # expect-one: INS201
    optimizer.step()
