import torch
import torch.nn.functional as F

opt = torch.optim.Adam(ae.parameters(), lr=1e-3)
ae.train()  # expect-one: INS604
for step, x in enumerate(loader):
    opt.zero_grad()
    loss = F.mse_loss(ae(x), x)  # expect-one: INS604
    loss.backward()  # expect-one: INS604
    opt.step()
    if step % 1000 == 0:
        ae.train(False)  # expect-one: INS604
        with torch.no_grad():
            show(ae(fixed))
