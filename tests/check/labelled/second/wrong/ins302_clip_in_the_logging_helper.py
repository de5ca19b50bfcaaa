import torch


def training_loop(model, loader, optimizer, writer, max_norm=1.0):
    global_step = 0
    for epoch in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            global_step += 1
            finish_step(model, writer, global_step, loss.item(), max_norm)


def finish_step(model, writer, step, value, max_norm):
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # expect: INS302
    writer.add_scalar("loss", value, step)
    writer.add_scalar("grad_norm", norm, step)
