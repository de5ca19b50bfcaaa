for epoch in range(num_epochs):
    optimizer.zero_grad(set_to_none=True)
    for idx, (audio, text) in enumerate(train_loader):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(audio), text) / accum_iter
        scaler.scale(loss).backward()  # expect-one: INS202

        if (idx + 1) % accum_iter == 0:  # expect-one: INS202
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)  # expect-one: INS202
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
    validate(model, epoch)
