# trap 13: LBFGS calls the nested function, which clears and goes backward
# expect: nothing
import torch

picture = content.clone().requires_grad_(True)
lbfgs = torch.optim.LBFGS([picture])

for run in range(20):

    def evaluate():
        lbfgs.zero_grad()
        loss = style_distance(picture, style) + 10 * content_distance(picture, content)
        loss.backward()
        return loss

    lbfgs.step(evaluate)
