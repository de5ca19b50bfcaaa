# trap 7: sums are divided by the number of samples of the whole batch
# expect: nothing
import torch.nn.functional as F

for images, labels in loader:
    optimizer.zero_grad()
    for x, y in zip(images.split(16), labels.split(16)):
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(images)
        loss.backward()
    optimizer.step()
