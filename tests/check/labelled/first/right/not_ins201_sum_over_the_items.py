# trap 7: a loop adds one loss for each item of the batch, so a window of batches is one larger sum
# expect: nothing
import torch


def train(tagger, optimizer, loader):
    criterion = torch.nn.CrossEntropyLoss()
    waiting = 0
    for epoch in range(6):
        for tokens, tags in loader:
            logits = tagger(tokens)
            loss = 0
            for i in range(len(logits)):
                loss += criterion(logits[i], tags[i])
            loss.backward()
            waiting += 1
            if waiting == 8:
                optimizer.step()
                optimizer.zero_grad()
                waiting = 0


def main(tagger, loader):
    train(tagger, torch.optim.AdamW(tagger.parameters(), lr=2e-5), loader)
