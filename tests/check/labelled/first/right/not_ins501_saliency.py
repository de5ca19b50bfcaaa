# trap 9: the gradient of the input exists, because the input asked for it
# expect: nothing
import torch


def saliency(model, image, target):
    model.eval()
    image = image.clone().requires_grad_(True)
    score = model(image.unsqueeze(0))[0, target]
    score.backward()
    return image.grad.abs().amax(0)


for image, target in samples:
    show(saliency(model, image, target))
