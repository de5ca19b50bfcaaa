import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import instep
from instep.reports import chrome, page
from instep.reports.record import Record
from instep.reports.spans import spans
from instep.watching.record_of import record_of
from instep.watching.series import MOST_FIRST, MOST_LAST


def train(updates, *, size=2):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(updates):
        for _ in range(size):
            loss = model(torch.ones(3, 4)).square().mean()
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module")
def job():
    with instep.watch() as job:
        train(6)
    return job


def test_what_happened_is_in_the_record(job):
    record = record_of(job, command=("/somewhere/train.py", "--fast"), version="1.2.3")
    assert record.title == "train.py"
    assert record.command == ("/somewhere/train.py", "--fast")
    assert [(o.name, o.type, o.updates, o.skipped) for o in record.optimizers] == [
        ("optimizer", "SGD", 6, 0)
    ]
    assert [(span.number, span.backwards) for span in spans(record)] == [
        (number, 2) for number in range(1, 7)
    ]
    assert record.findings == job.findings
    assert [finding.code for finding in record.findings] == ["INS201"]
    assert {"loss/optimizer", "grad_norm/optimizer", "clip_norm/optimizer", "lr/optimizer"} <= set(
        record.lines
    )
    assert [update for update, _, _ in record.lines["lr/optimizer"]] == [1, 2, 3, 4, 5, 6]
    assert record.versions["instep"] == "1.2.3"
    assert record.versions["torch"] == torch.__version__
    assert record.seconds > 0


def test_the_users_lines_are_quoted(job):
    record = record_of(job)
    (finding,) = record.findings
    known = record.quotes[__file__]
    assert known[finding.place.line].strip() == "loss.backward()"
    assert known[finding.place.line - 2].strip() == "for _ in range(size):"
    assert "optimizer.step()" in {line.strip() for line in known.values()}


def test_a_record_of_a_real_job_can_be_reported_and_stored(job, tmp_path):
    record = record_of(job, ending="failed", error="ValueError: no")
    assert Record.from_json(record.to_json()) == replace(record)
    text = page.render(record)
    assert "unscaled-accumulation" in text
    assert "ValueError: no" in text
    assert '"ph":"X"' in chrome.render(record)


def test_a_job_that_still_runs_has_a_record_too():
    with instep.watch() as job:
        train(3)
        record = record_of(job, ending="running", findings=())
        assert record.optimizers[0].updates == 3
        assert record.findings == ()


def test_no_more_moments_than_asked_for(job):
    record = record_of(job, most_moments=12)
    assert len(record.first) + len(record.latest) <= 12
    assert record.left_out > 0
    assert spans(record)[-1].number == 6
    assert record.latest[-1][0] == record_of(job).first[-1][0]
    assert record_of(job, most_moments=10_000).left_out == 0


def test_long_jobs_say_what_is_not_kept():
    with instep.watch() as job:
        train(1, size=1)
        step = next(event for _, event in job.series.first if event.kind == "step")
        for _ in range(MOST_FIRST + MOST_LAST):
            job.series.moment(step)
    record = record_of(job)
    assert record.left_out == job.series.left_out > 0
    assert any("not in the timeline" in said for said in record.unseen)


def test_nothing_watched_is_a_record():
    with instep.watch() as job:
        pass
    record = record_of(job)
    assert record.optimizers == ()
    assert record.unseen == ()
    assert "No update was seen" in page.render(record)


def test_faults_and_what_is_opaque_are_told():
    with instep.watch() as job:
        train(1, size=1)
        job.seam.on_fault = lambda _: None
        job.seam.fault(ValueError("a bug of ours"))
        job.recorder.opaque(None, "somebody.step")
    said = " ".join(record_of(job).unseen)
    assert "ValueError: a bug of ours" in said
    assert "somebody.step" in said


def test_skipped_steps_are_a_line():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with instep.watch() as job:
        for factor in (1.0, float("inf"), 1.0, float("inf")):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(1, 2)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    record = record_of(job)
    assert (record.optimizers[0].updates, record.optimizers[0].skipped) == (4, 2)
    assert [point[::2] for point in record.lines["skipped/optimizer"]] == [(2, 1.0), (4, 2.0)]
    assert [span.skipped for span in spans(record)] == [None, "nonfinite", None, "nonfinite"]


def test_ranks_and_the_folder_come_from_the_environment(job, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.chdir(tmp_path)
    record = record_of(job)
    assert (record.rank, record.ranks, record.folder) == (3, 8, str(tmp_path))
    monkeypatch.setenv("RANK", "none")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert record_of(job).rank == 0
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", record.began)
