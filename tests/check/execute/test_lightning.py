from tests.check.execute.run import events, once

MODULE = """
import torch
import lightning as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = torch.nn.Linear(1, 1)
    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=0.1)
        sched = torch.optim.lr_scheduler.StepLR(opt, 3)
        return {returned}
    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        loss = self.net(batch).mean()
        self.manual_backward(loss / 4)
        {line}
        if (batch_idx + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()
"""


def module(returned="opt", line="pass"):
    return MODULE.format(returned=returned, line=line)


def test_the_step_is_called_for_each_batch():
    found = once(module(), "backward", "step", entry="training_step")
    assert found == [("backward", ("opt",), 0.25), ("step", "opt", 4)]
    ((_, loader, batches, _), *_) = events(module(), "epoch_end", entry="training_step")
    assert loader == "trainer"
    assert batches % 4 > 1


def test_optimizers_are_those_that_were_configured():
    for returned in ("[opt], [sched]", "{'optimizer': opt, 'lr_scheduler': sched}"):
        assert ("step", "opt", 4) in once(module(returned), entry="training_step")


def test_schedulers():
    source = module("[opt], [sched]", "self.lr_schedulers().step()")
    assert ("schedule", "opt", "sched", False) in once(source, entry="training_step")


def test_clipping():
    source = module(line="self.clip_gradients(opt, 0.5)")
    assert ("clip", ("opt",), "norm", None) in once(source, entry="training_step")


def test_a_method_of_its_own_may_call_that_of_the_base():
    own = """
    def manual_backward(self, loss):
        super().manual_backward(loss * 2)
    def training_step"""
    source = module().replace("\n    def training_step", own)
    assert ("backward", ("opt",), 0.5) in once(source, entry="training_step")


def test_a_method_of_its_own_is_followed_instead():
    own = """
    def manual_backward(self, loss):
        loss.backward()
        loss.backward()
    def training_step"""
    source = module().replace("\n    def training_step", own)
    kinds = [event[0] for event in events(source, "drawn", "backward", entry="training_step")]
    assert kinds[:3] == ["drawn", "backward", "backward"]
