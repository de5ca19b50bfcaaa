import torch

scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(gpt.parameters(), lr=3e-4)
MICRO = 4

for it in range(max_iters):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(MICRO):
        x, y = get_batch("train")
        with torch.amp.autocast("cuda", dtype=torch.float16):
            logits = gpt(x)
            loss = torch.nn.functional.cross_entropy(logits.view(-1, 50304), y.view(-1))  # expect-one: INS201
        scaler.scale(loss).backward()  # expect-one: INS201
    scaler.step(optimizer)
    scaler.update()
