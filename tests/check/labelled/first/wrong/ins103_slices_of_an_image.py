import torch


def train(net, loader, size):
    optimizer = torch.optim.Adam(net.parameters())
    for image, mask in loader:
        for i in range(0, image.shape[-2], size):
            for j in range(0, image.shape[-1], size):
                optimizer.zero_grad()
                out = net(image[:, :, i : i + size, j : j + size])
                loss = torch.nn.functional.mse_loss(out, mask[:, :, i : i + size, j : j + size])
                loss.backward()
                optimizer.step()  # expect: INS103
