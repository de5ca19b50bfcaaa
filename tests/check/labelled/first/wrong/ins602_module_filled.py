import torch
import torch.nn.functional as F

opt = torch.optim.Adam(gcn.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(200):
    gcn.train()
    gcn.zero_grad(set_to_none=False)  # expect: INS602
    out = gcn(data.x, data.edge_index)
    loss = F.nll_loss(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    opt.step()
