# trap 9: guidance and attacks read the gradient of an input, with no optimizer near
# expect: nothing
import torch


def pgd(model, x, y, eps, alpha, steps):
    adv = x.clone().detach()
    for _ in range(steps):
        adv.requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(model(adv), y)
        loss.backward()
        with torch.no_grad():
            adv = adv + alpha * adv.grad.sign()
            adv = x + (adv - x).clamp(-eps, eps)
        adv = adv.clamp(0, 1).detach()
    return adv


def guided(denoiser, classifier, x, label, scale):
    for t in reversed(range(50)):
        x = x.detach().requires_grad_(True)
        classifier(x, t).log_softmax(-1)[:, label].sum().backward()
        with torch.no_grad():
            x = denoiser(x, t) + scale * x.grad
    return x
