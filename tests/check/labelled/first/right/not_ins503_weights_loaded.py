# looks like INS503: loading a state writes into the parameters that the optimizer has
# expect: nothing
import torch

model = build_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model.load_state_dict(torch.load("start.pt"))
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
