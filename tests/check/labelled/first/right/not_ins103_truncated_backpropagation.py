# looks like INS103: a long sequence is trained in chunks, and each chunk is an update of its own
# expect: nothing
import torch

optimizer = torch.optim.Adam(rnn.parameters(), lr=1e-3)
for epoch in range(epochs):
    hidden = None
    for chunk in corpus.split(35):
        optimizer.zero_grad()
        out, hidden = rnn(chunk[:-1], hidden)
        hidden = hidden.detach()
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), chunk[1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(rnn.parameters(), 0.25)
        optimizer.step()
