# %% [markdown]
# Fine-tuning the tagger

# %%
import torch.nn.functional as F

history = []

# %%
for epoch in range(3):
    for words, tags in train_dl:
        scores = tagger(words)
        loss = F.cross_entropy(scores.transpose(1, 2), tags)
        loss.backward()  # expect-one: INS101
        optimizer.step()  # expect-one: INS101
        history.append(loss.item())

# %%
print(history[-10:])
