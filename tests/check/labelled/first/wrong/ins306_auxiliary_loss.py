import torch
import torch.nn.functional as F

scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for x, fine, coarse in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        a, b = net(x)
        main_loss = F.cross_entropy(a, fine)
        aux_loss = 0.3 * F.cross_entropy(b, coarse)
    scaler.scale(main_loss).backward(retain_graph=True)
    aux_loss.backward()  # expect: INS306
    scaler.step(optimizer)
    scaler.update()
