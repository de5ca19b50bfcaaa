import pytest

from tests.check.execute.run import SETUP, base

START = SETUP + 'scaler = torch.amp.GradScaler("cuda")\nloss = model(x).sum()\n'
LIMITED = "scaler.scale(loss).backward()\n{}\nscaler.step(optimizer)"


@pytest.mark.parametrize(
    ("limit", "scaled"),
    [
        ("1.0 * scaler.get_scale()", True),
        ("scaler.get_scale() * config.clip / 2", True),
        ("scaler.get_scale()", True),
        ("1.0 / scaler.get_scale()", None),
        ("config.clip", None),
        ("1.0", None),
    ],
)
@pytest.mark.parametrize("line", ["{}", "limit = {}"])
def test_limits(limit, scaled, line):
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), {})"
    named = clip.format("limit") if "=" in line else clip.format(limit)
    before = line.format(limit) if "=" in line else ""
    trace = base(START + LIMITED.format(f"{before}\n{named}"))
    [found] = [event for event in trace if event.kind == "clip"]
    assert found.scaled is scaled


@pytest.mark.parametrize(
    ("loss", "scaled"),
    [
        ("loss * scaler.get_scale()", True),
        ("scale * loss / 4", True),
        ("loss / scaler.get_scale()", False),
        ("loss * config.weight", False),
    ],
)
def test_losses(loss, scaled):
    source = f"scale = scaler.get_scale()\n({loss}).backward()\nscaler.step(optimizer)"
    [found] = [event for event in base(START + source) if event.kind == "backward"]
    assert found.scaled is scaled
