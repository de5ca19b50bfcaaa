"""A Stepper under watch: silent, and its updates are counted."""

import pytest
import torch
from torch import nn

import instep


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_windows_are_watched_in_silence(precision, capsys):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if precision == "fp16" else None
    with instep.watch() as job:
        stepper = instep.Stepper(
            model, optimizer, scheduler=scheduler, clip_norm=1.0, precision=precision, scaler=scaler
        )
        loader = torch.utils.data.DataLoader(torch.randn(18, 4), batch_size=2)
        for _ in range(2):
            for window in stepper.windows(loader, size=4):  # the last one is short
                for x in window:
                    window.backward(model(x).float().square().mean(), items=len(x))
        stepper.step(torch.ones(4, 4), lambda x: model(x).square().mean(), split=3)
    assert job.findings == ()
    assert capsys.readouterr().err == ""
    assert job.series.updates == {"optimizer": 7}
    assert not job.book.grown, "parameters are remembered for ever"


def test_two_optimizers_with_windows_of_their_own():
    model = nn.ModuleDict({"g": nn.Linear(2, 2), "d": nn.Linear(2, 1)})
    g = torch.optim.SGD(model["g"].parameters(), lr=0.01)
    d = torch.optim.Adam(model["d"].parameters(), lr=0.01)
    with instep.watch(live=False) as job:
        stepper = instep.Stepper(model, {"g": g, "d": d})
        for window in stepper.windows([torch.ones(2, 2)] * 8, size={"g": 2, "d": 4}):
            for x in window:
                loss = model["d"](model["g"](x)).square().mean()
                window.backward(loss, items=2, optimizer="g", retain_graph=True)
                window.backward(loss, items=2, optimizer="d")
    assert job.findings == ()
    assert job.series.updates == {"g": 4, "d": 2}


def test_a_plain_loop_beside_a_stepper_is_still_judged():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    other = nn.Linear(2, 1)
    plain = torch.optim.SGD(other.parameters(), lr=0.01)
    stepper = instep.Stepper(model, optimizer)
    with instep.watch(live=False) as job:
        for _ in range(4):
            stepper.step(torch.ones(4, 2), lambda x: model(x).square().mean(), split=2)
            other(torch.ones(1, 2)).sum().backward()
            plain.step()
    assert [finding.code for finding in job.findings] == ["INS101"]
