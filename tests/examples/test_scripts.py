"""Every script in examples/ runs, and what it prints is true."""

import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
EXACT = 1e-12
NUMBER = r"([-+\d.e]+)"


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    importlib.import_module(f"examples.{name}").main()
    return capsys.readouterr().out


def numbers(out: str, label: str) -> list[float]:
    """Return every number that stands behind a label; the label is a regular expression."""
    found = [float(match) for match in re.findall(label + r":?\s*" + NUMBER, out)]
    assert found, f"nothing like {label!r} in:\n{out}"
    return found


def number(out: str, label: str) -> float:
    (found,) = numbers(out, label)
    return found


def test_each_script_has_a_test_below() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(SCRIPTS) <= tested


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_says_which_question_it_answers(name: str) -> None:
    first = (importlib.import_module(f"examples.{name}").__doc__ or "").splitlines()[0]
    assert first.endswith("?")


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_prints_a_few_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 <= len(printed(name, capsys).splitlines()) <= 6


def test_when_to_zero_grad(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("when_to_zero_grad", capsys)
    assert number(out, "forgotten, to the plain loop") > 1e-2
    assert number(out, "windows of 1 batch, to the plain loop") < EXACT
    assert number(out, "windows of 4, to the 4 batches as one") < EXACT


def test_accumulate_amp_clip(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("accumulate_amp_clip", capsys)
    first, last = numbers(out, "window's loss")
    assert last < first
    assert "logits were torch.bfloat16, weights are torch.float32" in out
    updates = number(out, "updates")
    # 19 micro-batches make 5 windows of 4 or fewer, in each of 5 epochs.
    assert (number(out, "micro-batches"), updates) == (95, 25)
    assert number(out, "scheduler counted") == updates
    assert 0 < number(out, "clipped") < updates


def test_patches(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("patches", capsys)
    assert re.findall(r"one update from (\d+) patches, (\d+) pixels", out) == [
        ("9", str(80 * 72)),
        ("8", str(100 * 40)),
    ]
    assert number(out, "patches, distance from whole images") < EXACT
    assert number(out, "patches without a halo, distance from whole images") > 1e-4
    assert number(out, "stitched output, distance from the whole") < EXACT


def test_masked_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("masked_tokens", capsys)
    assert "tokens: [19, 3, 0, 10], counted: 32" in out
    assert "skipped: None" in out
    assert number(out, "loss per token") == number(out, "loss per token, one batch")
    assert number(out, "distance from one batch") < EXACT
    assert "own means: nan" in out


def test_several_losses(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("several_losses", capsys)
    losses = numbers(out, ": loss")
    assert len(losses) == 3
    assert len(set(losses)) == 1
    assert number(out, "one batch, counted as they come") < EXACT
    assert number(out, "one batch, counted ahead") < EXACT


def test_two_optimizers(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("two_optimizers", capsys)
    micro_batches = number(out, "micro-batches")
    assert number(out, "updates of d") == micro_batches
    assert f"({micro_batches:.0f} of them before g's turn)" in out
    # 33 micro-batches an epoch: 16 windows of two, and one of one.
    assert number(out, "updates of g") == micro_batches / 33 * 17
    before, after = re.findall(r"([\d.]+) → ([\d.]+)", out)[0]
    assert float(after) < float(before) / 2


def test_contrastive(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("contrastive", capsys)
    assert number(out, "piece by piece, gradient error") > 1e-2
    assert "(coupled)" in out
    assert number(out, "of 8 pieces, loss") == number(out, "as one batch, loss")
    assert number(out, "distance after 20 updates, two passes") < EXACT


def test_train_lm(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_, last = numbers(printed("train_lm", capsys), "loss")
    assert last < 3.5 < first < 6.0  # a guess among 256 bytes is 5.5


def test_train_lm_goes_on_when_it_is_started_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("examples.train_lm")
    options = ["--lines=60", "--width=16", "--every=1"]
    module.main(options)
    expected = capsys.readouterr().out.splitlines()
    options.append(f"--save={tmp_path / 'lm.ckpt'}")
    padded, calls = module.padded, []

    def stops(lines):
        calls.append(1)
        if len(calls) in (7, 11):
            raise KeyboardInterrupt
        return padded(lines)

    monkeypatch.setattr(module, "padded", stops)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            module.main(options)
    module.main(options)
    assert capsys.readouterr().out.splitlines()[-1] == expected[-1]
    # Of 16 micro-batches, those of a window that was not over came again.
    assert 16 < len(calls) < 32


def test_resume(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("resume", capsys)
    assert "stopped in epoch 2 after 19 micro-batches" in out
    assert "resumed for the other 7 of 26" in out
    assert number(out, "model and optimizer") > 0
    assert "bit-identical: True" in out


def test_resume_compares_for_real(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that forgets the stepper's state is not bit-identical, and the script says so."""
    module = importlib.import_module("examples.resume")
    load = module.Training.load

    def forgetful(self, state) -> None:
        load(self, {**state, "stepper": self.stepper.state_dict()})

    monkeypatch.setattr(module.Training, "load", forgetful)
    assert "bit-identical: False" in printed("resume", capsys)
