import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


def main(loader, epochs=10):
    vocoder = nn.Sequential()
    vocoder.conv = nn.Conv1d(80, 256, 7, padding=3)
    vocoder.out = nn.Conv1d(256, 1, 7, padding=3)
    optimizer = torch.optim.AdamW(vocoder.parameters(), lr=2e-4)  # expect-one: INS503
    weight_norm(vocoder.conv)  # expect-one: INS503
    vocoder.train()
    for _ in range(epochs):
        for mel, wave in loader:
            optimizer.zero_grad()
            loss = nn.functional.l1_loss(vocoder(mel), wave)
            loss.backward()
            optimizer.step()
