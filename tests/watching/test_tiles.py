"""Images that are backpropagated in patches: mean losses that nobody divides."""

import pytest

from tests.watching.jobs import found, run

LOOP = """{head}
from torch.utils.data import DataLoader, TensorDataset
images = TensorDataset(torch.randn({shape}), torch.randn({shape}))
model = torch.nn.{model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for x, y in DataLoader(images, 2):
        optimizer.zero_grad()
        for {names} in {pieces}:
            loss = F.mse_loss({given}, reduction="{reduction}"){share}
            loss.backward()
        {after}
        optimizer.step()
"""
ACROSS = "zip(x.split(8, -1), y.split(8, -1))"


def job(**more):
    usual = {
        "shape": "12, 1, 16, 16", "model": "Conv2d(1, 1, 3, padding=1)", "names": "a, b",
        "pieces": ACROSS, "given": "model(a), b", "reduction": "mean", "share": "", "after": "pass",
        "head": "",
    }  # fmt: skip
    return run(LOOP.format(**(usual | more)))


PATCHES = """
def unfolded(x):
    return x.unfold(2, 8, 8).unfold(3, 8, 8)
def squares(x):
    return [unfolded(x)[:, :, i, j] for i in (0, 1) for j in (0, 1)]
def planes(x):
    return unfolded(x).contiguous().view(2, 1, 4, 8, 8).unbind(2)
def columns(x):
    return [each.view(2, 1, 8, 8) for each in F.unfold(x, 8, stride=8).unbind(-1)]
def batches(x):
    return unfolded(x).permute(0, 2, 3, 1, 4, 5).reshape(-1, 1, 8, 8).split(2)
"""
UNFOLDED = {
    "squares": "pieces",
    "planes": "pieces",
    "columns": "pieces",
    "batches": "micro-batches",
}
"""What makes patches of images, and what they are called."""
NESTED = "[(i, j) for i in (0, 8) for j in (0, 8)]"
SLICES = "model(x[:, :, i:i+8, j:j+8]), y[:, :, i:i+8, j:j+8]"


FIVE = """
def five(x):
    return [x[..., i:i+8, j:j+8] for i, j in ((0, 0), (0, 8), (8, 0), (8, 8), (4, 4))]
"""
CROPS = """
def crops(x, starts):
    return [x[..., at:at+8].clone() for at in starts]
"""
SLIDING = "model(x.unfold(3, 8, 4)[:, :, :, i]), y.unfold(3, 8, 4)[:, :, :, i]"


@pytest.mark.parametrize(
    ("size", "more"),
    [
        (2, {}),
        (4, {"names": "i, j", "pieces": NESTED, "given": SLICES}),
        (3, {"pieces": "zip(x.split(7, -1), y.split(7, -1))"}),
        (3, {"names": "i", "pieces": "range(3)", "given": SLIDING}),
        (2, {"after": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"}),
    ],
)
def test_patches_that_are_added_up(size, more):
    watched = job(**more)
    assert found(watched) == [("INS201", 11)]
    (finding,) = watched.findings
    assert finding.severity.word == "warning"
    assert f"is {size} times that of the mean over {size} pieces" in finding.message


def unfolded(kind, **more):
    return job(head=PATCHES, pieces=f"zip({kind}(x), {kind}(y))", **more)


@pytest.mark.parametrize(("kind", "noun"), UNFOLDED.items())
def test_patches_that_were_unfolded(kind, noun):
    watched = unfolded(kind)
    assert [code for code, _ in found(watched)] == ["INS201"]
    (finding,) = watched.findings
    assert f"is 4 times that of the mean over 4 {noun}" in finding.message


@pytest.mark.parametrize("kind", UNFOLDED)
def test_patches_that_were_unfolded_and_are_divided(kind):
    assert found(unfolded(kind, share=" / 4")) == []


@pytest.mark.parametrize(
    "more",
    [
        {"share": " / 2"},
        {"reduction": "sum"},
        {"after": "[p.grad.div_(2) for p in model.parameters()]"},
        # Crops, which need not be all there is.
        {"pieces": "zip((x[..., :8], x[..., 4:12]), (y[..., :8], y[..., 4:12]))"},
        {"pieces": "zip((x[..., :8], x[..., :12]), (y[..., :8], y[..., :12]))"},
        # Four corners and the middle, chosen for what is in them.
        {"head": FIVE, "pieces": "zip(five(x), five(y))"},
        {"head": FIVE, "pieces": "zip(map(torch.clone, five(x)), five(y))"},
        # Crops that are copies, and need not be all there is.
        {"head": CROPS, "pieces": "zip(crops(x, [0, 3]), crops(y, [0, 3]))"},
        {"head": CROPS, "pieces": "zip(crops(x, [0, 0]), crops(y, [0, 0]))"},
        {"head": CROPS, "pieces": "zip(crops(x, [0, 8]), crops(y, [0, 8]))", "share": " / 2"},
        # Noise of the size of patches.
        {
            "names": "i",
            "pieces": "range(2)",
            "given": "model(torch.randn(2, 1, 16, 8)), y[..., :8]",
        },
        # What is stacked along the channels is seen by different eyes.
        {
            "shape": "12, 2, 16, 16",
            "pieces": "zip(x.split(1, 1), y.split(1, 1))",
        },
        # A sequence: truncated backpropagation through time adds up its chunks.
        {
            "shape": "12, 16, 8",
            "model": "Linear(8, 8)",
            "pieces": "zip(x.split(8, 1), y.split(8, 1))",
        },
    ],
)
def test_what_is_no_mistake_or_may_be_none(more):
    assert [code for code, _ in found(job(**more)) if code == "INS201"] == []


@pytest.mark.parametrize("how", ["contiguous()", "clone()", "double().float()", "mul(1)"])
@pytest.mark.parametrize("stride", [8, 4])
def test_patches_that_are_copied_one_by_one(how, stride):
    size = 4 if stride == 8 else 9
    starts = f"range(0, 9, {stride})"
    watched = job(
        names="i, j",
        pieces=f"[(i, j) for i in {starts} for j in {starts}]",
        given=f"model(x[:, :, i:i+8, j:j+8].{how}), y[:, :, i:i+8, j:j+8]",
    )
    assert found(watched) == [("INS201", 11)]
    (finding,) = watched.findings
    assert finding.severity.word == "warning"
    assert f"is {size} times that of the mean over {size} pieces" in finding.message


def test_a_step_after_each_copied_patch():
    watched = run(STEPS)
    assert found(watched) == [("INS103", 11)]


STEPS = """
from torch.utils.data import DataLoader, TensorDataset
images = TensorDataset(torch.randn(12, 3, 16, 16))
model = torch.nn.Conv2d(3, 1, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (x,) in DataLoader(images, 2):
    for at in (0, 8):
        patch = x[:, :, at : at + 8].clone()
        optimizer.zero_grad()
        model(patch).square().mean().backward()
        optimizer.step()
"""
