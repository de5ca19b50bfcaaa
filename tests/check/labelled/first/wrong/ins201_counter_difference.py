import torch


def train(model, batches, total, n):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    updated_at = 0
    for i in range(1, total + 1):
        x, y = next(batches)
        loss = torch.nn.functional.cross_entropy(model(x), y)  # expect-one: INS201
        loss.backward()  # expect-one: INS201
        if i - updated_at >= n or i == total:
            optimizer.step()
            optimizer.zero_grad()
            updated_at = i
