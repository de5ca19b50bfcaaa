# looks like INS401: code for a torch in which the scheduler came first
# expect: nothing
import torch
from torch.autograd import Variable

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
for epoch in range(90):
    scheduler.step()
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(Variable(x)), Variable(y))
        loss.backward()
        optimizer.step()
        print(loss.data[0])
