import torch
import torch.nn.functional as F

regressor = torch.nn.Linear(16, 1)
adam = torch.optim.Adam(regressor.parameters(), lr=3e-4)

stream = iter(loader)
done = 0
while done < 20_000:
    try:
        features, price = next(stream)
    except StopIteration:
        stream = iter(loader)
        features, price = next(stream)
    loss = F.smooth_l1_loss(regressor(features).squeeze(1), price)
    loss.backward()  # expect-one: INS101
    adam.step()  # expect-one: INS101
    done += 1
