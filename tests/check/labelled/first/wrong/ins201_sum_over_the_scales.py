import torch
import torch.nn.functional as F

optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
optimizer.zero_grad()
seen = 0
for epoch in range(20):
    for image, mask in loader:
        loss = 0
        for output in net(image):
            loss += F.cross_entropy(output, mask)
        loss.backward()  # expect: INS201
        seen += 1
        if seen % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
