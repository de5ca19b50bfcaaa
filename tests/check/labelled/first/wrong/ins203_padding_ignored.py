import torch
from torch import nn

PAD, MICRO = 0, 4
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
translator = Seq2Seq(vocab)
adam = torch.optim.Adam(translator.parameters(), lr=1e-4)

pairs = endless(pair_loader)
for update in range(100_000):
    adam.zero_grad()
    for _ in range(MICRO):
        source, target = next(pairs)
        logits = translator(source, target[:, :-1])
        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())  # expect-one: INS203
        (loss / MICRO).backward()  # expect-one: INS203
    adam.step()
