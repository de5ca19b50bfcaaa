# trap 4: another file keeps the gradients, and puts them back by hand after they were cleared
# expect: nothing
import torch
from apex import amp
from adversarial.attack import Attack


def train(model, loader, every, turns=3):
    attack = Attack(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    model.zero_grad()
    for done, batch in enumerate(loader, start=1):
        backward(model, batch, optimizer, every)
        attack.keep()
        for turn in range(turns):
            if turn < turns - 1:
                model.zero_grad()
            else:
                attack.put_back()
            backward(model, batch, optimizer, every)
        if done % every == 0 or done == len(loader):
            optimizer.step()
            model.zero_grad()


def backward(model, batch, optimizer, every):
    loss = model(**batch).loss / every
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
