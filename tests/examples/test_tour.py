"""The tour shows what it says, fails if a stop fails, and leaves a picture with something on it."""

import doctest
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from examples.tour import __main__ as tour
from examples.tour import loops, patch_loops, satellite, show
from examples.tour.meter import peak_bytes
from examples.tour.show import body_of, progress, side_by_side
from examples.tour.stop import Seen, TourError
from examples.tour.stops import checking, one_window, patches, training, watching


def test_one_window_the_engine_is_exact_and_the_textbook_loop_is_not() -> None:
    whole, ways = one_window.measure_all()
    textbook, *engine = ways.values()
    assert len(engine) == 3
    assert textbook.gradient_error(whole) > 1e-2
    assert textbook.update_error(whole) > 1e-2
    for way in engine:
        assert len(way.gradients) == len(whole.gradients)
        assert way.gradient_error(whole) < 1e-12
        assert way.update_error(whole) < 1e-12


def test_one_window_has_all_that_is_ragged() -> None:
    batches = one_window.ragged_tokens()
    counts = [int(loops.counted(targets)) for _, targets in batches]
    assert len(batches) % one_window.WINDOW not in (0, 1)
    assert len(batches[-1][0]) < len(batches[0][0])
    assert max(counts) >= 3 * min(counts)
    assert all(0 < n < targets.numel() for n, (_, targets) in zip(counts, batches, strict=True))


def test_one_window_does_not_hide_an_inexact_engine() -> None:
    whole, ways = one_window.measure_all()
    wrong = next(iter(ways.values()))
    with pytest.raises(TourError, match="the engine is off by"):
        one_window._seen(whole, dict.fromkeys("abcd", wrong))


def test_wrong_loops_are_found_mended_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = checking.stop(tmp_path)
    out = capsys.readouterr().out
    report, _, rest = out.partition("$ instep check --diff")
    found = re.findall(
        r"^(\w+\.py):\d+:\d+: (?:error|warning) INS\d{3} ([\w-]+):", report, re.MULTILINE
    )
    assert sorted(found) == [
        ("amp.py", "clip-before-unscale"),
        ("amp.py", "leftover-window"),
        ("amp.py", "unscaled-accumulation"),
        ("patches.py", "step-per-patch"),
        ("plain.py", "missing-zero-grad"),
    ]
    assert {"+        optimizer.zero_grad()", "+            scaler.unscale_(optimizer)"} <= set(
        rest.splitlines()
    )
    assert rest.count("No problems found in 3 files.") == 2
    rows = re.findall(r"^(\w+)\.py: .*? +(\d+)% +(\S+)$", rest, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["plain", "patches", "amp"]
    assert all(float(before) >= 30 and float(after) < 1e-12 for _, before, after in rows)
    assert imread(seen.pictures[0])[..., :3].std() > 0.02


def test_a_wrong_job_is_watched_and_its_mended_form_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = watching.stop(tmp_path)
    assert [page.name for page in seen.pictures] == ["watched.html"]
    shown = capsys.readouterr().out
    assert "2 parameters of `model.features` are in no optimizer" in shown
    assert "no problems found" in shown


def test_a_job_is_not_said_to_be_mended_if_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("INS201 INS202 INS301", encoding="utf-8")
    (tmp_path / "mended.json").write_text("[]", encoding="utf-8")
    with pytest.raises(TourError, match="does not tell of INS502"):
        watching._seen(tmp_path, tmp_path)
    (tmp_path / "report.html").write_text("INS201 INS202 INS301 INS502", encoding="utf-8")
    (tmp_path / "mended.json").write_text("[{}]", encoding="utf-8")
    with pytest.raises(TourError, match="1 mistakes"):
        watching._seen(tmp_path, tmp_path)


def test_wrong_loops_are_not_said_to_be_mended_if_they_are_not(tmp_path: Path) -> None:
    for before, after in ((1e-3, 0.0), (0.5, 1e-3)):
        with pytest.raises(TourError, match="is off by"):
            checking._seen({"plain.py": checking.Mended("", before, after)}, tmp_path / "a.png")


def test_a_command_that_ends_otherwise_fails_its_stop(tmp_path: Path) -> None:
    (tmp_path / "empty.py").touch()
    with pytest.raises(TourError, match="exits with 0, not 1"):
        checking.instep_check(tmp_path, "empty.py", expect=1)


def test_images_in_patches_tells_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = patches.stop(tmp_path, passes=2)
    out = capsys.readouterr().out
    rows = dict(re.findall(r"^(\S.*?)  +(\d\d\.\d\d)  +\d\d\.\d\d$", out, re.MULTILINE))
    assert {"bicubic", "naive, shown patch by patch", "instep.Patches, shown with halo"} <= set(
        rows
    )
    assert float(rows["naive, shown with halo"]) > float(rows["naive, shown patch by patch"])
    naive, exact = re.findall(r"^naive (\S+), instep.Patches (\S+)$", out, re.MULTILINE)[0]
    assert float(naive) > 1e-2
    assert float(exact) < 1e-12
    assert "NASA" in out
    pixels = imread(seen.pictures[0])[..., :3]
    assert pixels.shape[1] > pixels.shape[0] > 600
    assert pixels.std() > 0.02


def test_images_in_patches_are_run_with_halo_as_in_one_piece() -> None:
    small, truth = satellite.load(satellite.SHOWN, size=satellite.SHOWN_SIZE)
    assert torch.allclose(small[0, :, 0, 0], truth[0, :, :2, :2].mean((1, 2)))
    model = patches.network()
    with torch.no_grad():
        whole = model(small)
    assert (patch_loops.with_halo(model, small) - whole).abs().max() < 1e-6
    naive = (patch_loops.patch_by_patch(model, small) - whole).abs()[0].amax(0)
    near = patch_loops.borders((226, 300), 2 * 7)
    assert naive[near].max() > 1e-3
    assert naive[~near].max() < 1e-6


def test_images_in_patches_says_nothing_that_was_not_measured(tmp_path: Path) -> None:
    names = (patches.NAIVE, patches.ENGINE)
    right = dict(zip(names, (0.1, 1e-15), strict=True))
    used = {"whole image": 8.0, patches.ENGINE: 1.0}
    for errors, memory, said in (
        ({**right, patches.ENGINE: 1e-9}, used, "is off by"),
        ({**right, patches.NAIVE: 1e-9}, used, "off by only"),
        (right, {**used, patches.ENGINE: 5.0}, "5.0 MiB"),
    ):
        with pytest.raises(TourError, match=said):
            patches._seen(errors, memory, {}, tmp_path)


def test_the_meter_counts_tensors_while_they_live() -> None:
    outside = torch.ones(1000)

    def update() -> None:
        kept = outside + 1
        for _ in range(3):
            kept.mul_(2)
            kept.view(10, 100).exp()

    assert peak_bytes(update) == 8000
    model = torch.nn.Linear(8, 8, bias=False)
    assert peak_bytes(lambda: model(torch.ones(100, 8)).sum().backward()) >= 2 * 3200


SHORT = {"One window, four ways": one_window.stop, "Training": training.stop}
"""Stops that no test above makes; the others are made there, each by itself."""


@pytest.mark.parametrize(
    "stops", [SHORT, pytest.param(tour.STOPS, marks=pytest.mark.slow)], ids=["short", "whole"]
)
def test_the_tour_ends_with_what_was_seen(
    stops: dict[str, Callable[[Path], Seen]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tour, "STOPS", stops)
    tour.main(["--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "(loss / n).backward()" in out
    assert "window.backward(loss, items=counted(y))" in out
    assert "\r" not in out
    picture = tmp_path / "tour" / "loss_curves.png"
    *seen, where, following = out.splitlines()[-len(stops) - 2 :]
    assert seen[0].startswith("Seen:")
    assert str(picture) in where
    assert following.startswith("Next:")
    pixels = imread(picture)[..., :3]
    assert pixels.shape[1] > pixels.shape[0] > 400
    assert pixels.std() > 0.02
    for colour in (training.picture.RED, training.picture.BLUE):
        wanted = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        for half in (pixels[:, : pixels.shape[1] // 2], pixels[:, pixels.shape[1] // 2 :]):
            assert (abs(half - wanted).max(-1) < 0.02).sum() > 100


def test_a_failing_stop_fails_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> Seen:
        raise TourError("nothing to see")

    monkeypatch.setattr(tour, "STOPS", {"Broken": broken})
    with pytest.raises(TourError, match="nothing to see") as caught:
        tour.main(["--out", str(tmp_path)])
    assert caught.value.__notes__ == ["at stop 1 of the tour: Broken"]


def test_a_picture_is_drawn_only_of_what_its_title_says(tmp_path: Path) -> None:
    far, near = [0.5], [1e-15]
    names = (training.TEXTBOOK, training.ENGINE)
    for pair in ((far, far), (near, near)):
        with pytest.raises(TourError):
            training._seen(dict(zip(names, pair, strict=True)), tmp_path)


def test_progress_redraws_one_line_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert list(progress(range(3), "work")) == [0, 1, 2]
    out = capsys.readouterr().out
    assert out.count("\r") == 3
    assert out.endswith("3/3\n")


def test_progress_prints_a_line_now_and_then_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(range(100), "work")) == list(range(100))
    assert capsys.readouterr().out.split() == [
        "work",
        "25/100",
        "work",
        "50/100",
        "work",
        "75/100",
        "work",
        "100/100",
    ]


def test_tables_look_as_documented() -> None:
    assert doctest.testmod(show).failed == 0


def test_source_is_shown_without_what_a_reader_does_not_need() -> None:
    lines = body_of(loops.tensor_items)
    assert lines[0] == "for window in stepper.windows(batches, size=n):"
    assert "    (loss / n).backward()" in body_of(loops.textbook)
    shown = side_by_side(("a", ["one", "two"]), ("b", ["three"])).splitlines()
    assert shown == ["a    |  b", "---  |  -----", "one  |  three", "two  |"]
