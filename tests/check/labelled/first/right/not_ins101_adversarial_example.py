# trap 9: the gradient of an image is wanted, and nothing is trained
# expect: nothing
import torch


def fgsm(classifier, image, label, eps):
    image = image.clone().detach().requires_grad_(True)
    loss = torch.nn.functional.cross_entropy(classifier(image), label)
    loss.backward()
    return (image + eps * image.grad.sign()).clamp(0, 1)


def robust_accuracy(classifier, loader, eps=8 / 255):
    hits = 0
    for image, label in loader:
        adversarial = fgsm(classifier, image, label, eps)
        hits += (classifier(adversarial).argmax(1) == label).sum().item()
    return hits / len(loader.dataset)
