import pytest

from tests.watching.jobs import found, gauges, run

LOOP = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 50), torch.nn.Linear(50, 4)

    def forward(self, x):
        return self.head(self.body(x))

model = Net()
optimizer = torch.optim.SGD(model.body.parameters(), lr=0.01)
for update in range(8):
    {clear}.zero_grad()
    loss = model(torch.randn(8, 8)).square().mean()
    loss.backward()
    optimizer.step()
    {after}
"""


def job(clear="optimizer", after="pass", **more):
    return run(LOOP.format(clear=clear, after=after), **more)


def test_a_part_that_no_optimizer_holds():
    watched = job()
    told = gauges(watched)["foreign-gradients"]
    assert (told.value, told.unit) == ((50 * 4 + 4) * 4.0, "bytes")
    assert told.subject == "2 parameters of `model.head`"
    assert found(watched) == [("INS502", 15)]
    assert gauges(watched)["foreign-backwards"].value > 1


def test_gradients_that_are_cleared_do_not_grow():
    shown = gauges(job("model"))
    assert "foreign-gradients" in shown
    assert "foreign-backwards" not in shown
    filled = gauges(job(after="model.zero_grad(set_to_none=False)"))
    assert "foreign-backwards" not in filled


@pytest.mark.parametrize(
    "after",
    [
        "optimizer.add_param_group({'params': model.head.parameters()}) if update == 4 else None",
        "[p.data.sub_(0.1 * p.grad) for p in model.head.parameters()]",
        "torch._foreach_mul_([p.data for p in model.head.parameters()], 0.5)",
    ],
)
def test_what_somebody_trains_after_all_is_not_told(after):
    assert "foreign-gradients" not in gauges(job(after=after))


def test_a_frozen_part_gets_no_gradients():
    source = LOOP.replace("model = Net()", "model = Net(); model.head.requires_grad_(False)")
    watched = run(source.format(clear="optimizer", after="pass"))
    assert "foreign-gradients" not in gauges(watched)
    assert found(watched) == []


def test_bits():
    one, other = job().left["model"], job(watched=False).left["model"]
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert mine.equal(theirs)
        assert mine.grad.equal(theirs.grad)


def test_heads_in_a_list_are_told_together():
    source = LOOP.replace(
        "torch.nn.Linear(50, 4)", "[torch.nn.Linear(50, 5), torch.nn.Linear(50, 1)]"
    ).replace("self.head(self.body(x))", "torch.cat([each(self.body(x)) for each in self.head], 1)")
    watched = run(source.format(clear="optimizer", after="pass"))
    [finding] = watched.findings
    assert (50 * 5 + 5 + 50 + 1) * 4 == 1224
    assert finding.message.startswith("4 parameters of `linear` are in no optimizer: 1.2 kB")
