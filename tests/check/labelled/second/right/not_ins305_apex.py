# looks like INS305: apex scales in a context manager and unscales when it is left
# expect: nothing
import torch
from apex import amp

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for epoch in range(90):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
