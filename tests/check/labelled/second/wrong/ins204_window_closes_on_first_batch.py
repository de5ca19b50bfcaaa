import torch
import torch.nn as nn

net = UNet(3, 1)
optim = torch.optim.Adam(net.parameters(), lr=1e-4)
loss_fn = nn.BCEWithLogitsLoss()

for epoch in range(80):
    for step, (image, mask) in enumerate(train_dl):
        pred = net(image.cuda())
        loss = loss_fn(pred, mask.cuda()) / 4
        loss.backward()
        if step % 4 == 0:  # expect-one: INS204
            optim.step()  # expect-one: INS204
            optim.zero_grad()
