# trap 1: losses of two heads first, then the clearing, then the backward
# expect: nothing
import torch.nn.functional as F

for epoch in range(start_epoch, epochs):
    for x, age, gender in faces:
        out_age, out_gender = model(x)
        loss_age = F.l1_loss(out_age, age)
        loss_gender = F.cross_entropy(out_gender, gender)
        loss = loss_age + 0.5 * loss_gender
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
