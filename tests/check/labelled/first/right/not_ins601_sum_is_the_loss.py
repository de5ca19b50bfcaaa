# trap 8: the sum over time steps is backpropagated and made anew for each sequence
# expect: nothing
import torch

optimizer = torch.optim.Adam(cell.parameters())
for sequence in sequences:
    state, loss = None, 0
    for now, after in zip(sequence[:-1], sequence[1:]):
        out, state = cell(now, state)
        loss += torch.nn.functional.mse_loss(out, after)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
