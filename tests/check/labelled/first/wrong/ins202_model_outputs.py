from dataclasses import dataclass

import torch
from transformers import AutoModelForSequenceClassification


@dataclass
class Args:
    accumulation: int = 8
    epochs: int = 3


def main(args, loader):
    model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    model.train()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            outputs = model(**batch)
            loss = outputs.loss / args.accumulation
            loss.backward()  # expect-one: INS202
            if (step + 1) % args.accumulation == 0:  # expect-one: INS202
                optimizer.step()  # expect-one: INS202
                optimizer.zero_grad()
