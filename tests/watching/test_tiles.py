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


@pytest.mark.parametrize(
    ("size", "more"),
    [
        (2, {}),
        (4, {"names": "i, j", "pieces": NESTED, "given": SLICES}),
        (3, {"pieces": "zip(x.split(7, -1), y.split(7, -1))"}),
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
        # Overlapping ones: what is in two of them counts twice on purpose.
        {
            "names": "i",
            "pieces": "range(3)",
            "given": "model(x.unfold(3, 8, 4)[:, :, :, i]), y.unfold(3, 8, 4)[:, :, :, i]",
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
