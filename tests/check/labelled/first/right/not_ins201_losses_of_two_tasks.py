# looks like INS201: two losses of one batch go backward one by one; their sum is the objective
# expect: nothing
import torch
import torch.nn.functional as F

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for x, depth, normal in scenes:
    optimizer.zero_grad()
    out_depth, out_normal = model(x)
    depth_loss = F.l1_loss(out_depth, depth)
    normal_loss = 1 - F.cosine_similarity(out_normal, normal).mean()
    depth_loss.backward(retain_graph=True)
    normal_loss.backward()
    optimizer.step()
