import torch

model = torch.nn.Sequential(torch.nn.Linear(100, 50), torch.nn.GELU(), torch.nn.Linear(50, 1))
model.cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
mse = torch.nn.MSELoss()

for epoch in range(30):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = mse(model(x.cuda()), y.cuda())
        loss.backward()  # expect: INS306
        scaler.step(optimizer)
        scaler.update()
