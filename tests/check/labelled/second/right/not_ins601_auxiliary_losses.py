# trap 8: the sum is the loss; it is backpropagated and does not outlive the iteration
# expect: nothing
import torch
import torch.nn.functional as F


def train(model, loader, epochs, aux_weight=0.4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(epochs):
        for image, mask in loader:
            outputs = model(image)
            loss = F.cross_entropy(outputs["out"], mask)
            for aux in outputs["aux"]:
                loss += aux_weight * F.cross_entropy(aux, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
