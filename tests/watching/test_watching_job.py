"""`with instep.watch(...)`: what it prints, what it keeps silent about, and how it ends."""

import pytest
import torch
from torch import nn

import instep
from instep.errors import WatchError
from instep.watching import running


def wrong(updates=4):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(updates):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()


def meant(updates=4):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(updates):
        model(torch.ones(1, 2)).sum().backward()  # instep: ignore[missing-zero-grad] a test
        optimizer.step()


def test_a_finding_is_said_while_the_job_runs(capsys):
    with instep.watch() as job:
        wrong()
        said = capsys.readouterr().err
        assert said.count("error INS101 missing-zero-grad: ") == 1
        wrong.__code__  # noqa: B018  # the same place: not said again
        wrong()
    assert capsys.readouterr().err.count("INS101") <= 1
    assert {finding.code for finding in job.findings} == {"INS101"}
    assert "error" in job.summary()


def test_what_shows_at_the_end_is_said_at_the_end(capsys):
    with instep.watch():
        wrong(updates=2)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err.count("INS101") == 1


def test_a_quiet_watch_says_nothing(capsys):
    with instep.watch(live=False) as job:
        wrong()
    assert capsys.readouterr() == ("", "")
    assert len(job.findings) == 1


def test_a_comment_silences_at_run_time(capsys):
    with instep.watch(strict=True) as job:
        meant()
    assert job.findings == ()
    assert capsys.readouterr().err == ""
    assert job.judge.findings  # it was found


def test_strict_raises_at_the_end_of_the_block():
    with pytest.raises(WatchError) as raised, instep.watch(live=False, strict=True):
        wrong()
    assert str(raised.value).startswith("1 error found in what was watched.\n  why:  ")
    assert "INS101 missing-zero-grad" in raised.value.why
    assert "# instep: ignore[missing-zero-grad]" in raised.value.fix


def test_strict_leaves_an_error_of_the_job_alone():
    with pytest.raises(ZeroDivisionError), instep.watch(live=False, strict=True):
        wrong()
        raise ZeroDivisionError


def test_strict_is_silent_about_what_is_right():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with instep.watch(live=False, strict=True) as job:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(3, 2)).mean().backward()
            optimizer.step()
    assert job.summary().startswith("Watched 4 updates")


def test_only_what_is_accepted_counts(capsys):
    with instep.watch() as job:
        job.accepts = lambda finding: finding.code != "INS101"
        wrong()
    assert job.findings == ()
    assert capsys.readouterr().err == ""


def test_a_watch_that_has_ended_stays_so():
    job = instep.watch(live=False).start()
    wrong()
    assert running.newest() is job
    job.stop()
    assert running.newest() is None
    found = job.findings
    job.stop()
    wrong()
    assert job.findings == found


def test_watches_inside_of_one_another():
    with instep.watch(live=False) as outer:
        with instep.watch(live=False) as inner:
            assert running.newest() is inner
            wrong()
        assert running.newest() is outer
        wrong()
    assert running.newest() is None
    assert inner.findings
    assert outer.findings
    assert outer.series.updates == {"optimizer": 4, "optimizer#2": 4}


def test_the_loss_of_a_scaled_job_is_that_before_the_scale():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    with instep.watch(live=False) as job:
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 2))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert job.findings == ()
    assert job.series.lines["loss/optimizer"].last[2] == pytest.approx(loss.item())


def test_a_job_without_updates_is_not_said_to_be_right():
    with instep.watch(live=False) as job:
        pass
    assert job.summary() == "No update was seen: there was nothing to judge.\n"


def chunks(x, y, n):
    return zip(x.chunk(n), y.chunk(n), strict=True)


def test_iterations_that_fail_and_are_cleared_are_no_windows():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    with instep.watch(live=False) as job:
        for i in range(20):
            optimizer.zero_grad()
            try:
                loss = model(torch.randn(8, 4)).square().mean()
                if i % 4 == 1:
                    raise MemoryError  # noqa: TRY301
                loss.backward()
                if i % 4 == 2:
                    raise MemoryError  # noqa: TRY301
                optimizer.step()
            except MemoryError:
                optimizer.zero_grad()
    assert job.findings == ()


def test_a_batch_that_is_tried_again_in_pieces_is_not_ragged():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    with instep.watch(live=False) as job:
        for i in range(30):
            x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
            for n in (1, 2) if i % 6 == 5 else (1,):
                optimizer.zero_grad()
                for a, b in chunks(x, y, n):
                    (nn.functional.cross_entropy(model(a), b) / n).backward()
            optimizer.step()
    assert job.findings == ()


def test_a_gradient_that_comes_late_is_no_finding_at_the_end():
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(4, 2) for _ in range(2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(updates, branch):
        for _ in range(updates):
            optimizer.zero_grad()
            model[branch](torch.randn(8, 4)).square().mean().backward()
            optimizer.step()

    with instep.watch(live=False) as job:
        train(20, 0)
        assert [finding.code for finding in job.findings] == ["INS504"]
        train(4, 1)
    assert job.findings == ()


def test_findings_print_as_people_read_them():
    with instep.watch(live=False) as job:
        wrong()
    [finding] = job.findings
    assert isinstance(job.findings, tuple)
    assert (finding.path, finding.line) == (finding.place.path, finding.place.line)
    line = f"{finding.place.line}:{finding.place.column + 1}: error INS101 missing-zero-grad: "
    for said in (str(job.findings), repr(job.findings)):
        assert line in said
        assert len(said.splitlines()) == 1
    with instep.watch(live=False) as job:
        pass
    assert (str(job.findings), repr(job.findings)) == ("no findings", "()")


@pytest.mark.parametrize(
    ("name", "start"),
    [("r.html", "<!doctype html>"), ("r.json", "["), ("r.sarif", "{"), ("r.txt", "")],
)
def test_a_report_of_a_block(name, start, tmp_path, monkeypatch):
    with instep.watch(live=False) as job:
        wrong()
        job.report(tmp_path / name)
        early = (tmp_path / name).read_text()
    job.report(str(tmp_path / name))
    text = (tmp_path / name).read_text()
    assert early.lower().startswith(start)
    assert text.lower().startswith(start)
    assert "INS101" in text
    assert "test_watching_job.py" in text


def test_a_report_that_cannot_be_written(tmp_path):
    job = instep.Job()
    with pytest.raises(WatchError, match="does not say what to write"):
        job.report(tmp_path / "report.pdf")
    with pytest.raises(WatchError, match="was not written"):
        job.report(tmp_path / "gone" / "report.html")


@pytest.mark.parametrize("thing", ["train.py", 3, None, torch.nn.Linear(1, 1).parameters()])
def test_what_has_no_part_in_training_cannot_be_watched(thing):
    with pytest.raises(WatchError, match=r"nothing that could be watched"):
        instep.watch(thing)
