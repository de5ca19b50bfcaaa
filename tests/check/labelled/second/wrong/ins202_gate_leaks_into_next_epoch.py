import torch

accumulation_steps = 4


def fit(model, loss_fn, train_loader, num_epochs, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    optimizer.zero_grad()
    for epoch in range(num_epochs):
        for i, (inputs, labels) in enumerate(train_loader):
            outputs = model(inputs.to(device))
            loss = loss_fn(outputs, labels.to(device)) / accumulation_steps
            loss.backward()  # expect-one: INS202
            if (i + 1) % accumulation_steps == 0:  # expect-one: INS202
                optimizer.step()  # expect-one: INS202
                optimizer.zero_grad()
