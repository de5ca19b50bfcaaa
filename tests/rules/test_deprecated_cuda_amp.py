import pytest

from instep.rules import deprecated_cuda_amp as rule
from instep.trace import Called
from tests.rules.lines import at, judged


@pytest.mark.parametrize(
    ("api", "new"),
    [
        ("torch.cuda.amp.autocast", '`torch.amp.autocast("cuda", ...)`'),
        ("torch.cuda.amp.GradScaler", '`torch.amp.GradScaler("cuda", ...)`'),
        ("torch.cuda.amp.grad_scaler.GradScaler", '`torch.amp.GradScaler("cuda", ...)`'),
        ("torch.cuda.amp.custom_bwd", '`torch.amp.custom_bwd(device_type="cuda")`'),
    ],
)
def test_old_names(api, new):
    severity, message = judged(rule, *[at(7, Called(api))] * 2)[7]
    assert severity == "info"
    assert message.endswith(f"will be removed; {new} does the same.")


@pytest.mark.parametrize("api", ["torch.amp.autocast", "torch.autocast", "torch.cuda.amp.other"])
def test_silent(api):
    assert judged(rule, at(7, Called(api))) == {}
