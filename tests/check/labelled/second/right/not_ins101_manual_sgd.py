# trap 9: no optimizer at all: manual descent and an adversarial image
# expect: nothing
import torch

w = torch.randn(10, 1, requires_grad=True)
for step in range(200):
    loss = ((features @ w - labels) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None


def fgsm(model, image, label, epsilon):
    image = image.clone().requires_grad_(True)
    loss = torch.nn.functional.cross_entropy(model(image), label)
    loss.backward()
    return (image + epsilon * image.grad.sign()).clamp(0, 1).detach()


def saliency_maps(model, images, labels):
    maps = []
    for image, label in zip(images, labels):
        image = image.unsqueeze(0).requires_grad_(True)
        model(image)[0, label].backward()
        maps.append(image.grad.abs().amax(1))
    return torch.cat(maps)
