from instep.check.execute import entries
from tests.check.execute.run import SETUP, problems, run

LOOP = """
for x in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


def test_one_path_without_decisions():
    (path,) = run(SETUP + LOOP).paths
    assert (path.entry, path.forced) == ("<module>", None)


def test_a_path_for_each_flag_that_events_hang_on():
    source = (
        SETUP + LOOP + "".join(f"\n    if flag_{i}:\n        optimizer.step()" for i in range(10))
    )
    paths = run(source).paths
    assert len(paths) == 1 + 6  # and no more than that
    assert None not in [path.forced for path in paths[1:]]


def test_a_flag_is_the_same_everywhere():
    source = (
        SETUP
        + LOOP
        + """
    if flag:
        optimizer.zero_grad()
    if not flag:
        optimizer.step()
"""
    )
    for path in run(source).paths:
        kinds = [event.kind for event in path.trace if event.kind in {"zero", "step"}]
        assert kinds[2] in {"zero", "step"}
        assert len(kinds) == 9  # one more in each of three iterations


def test_what_a_path_has_covered_is_no_entry():
    source = (
        SETUP
        + """
def update(x):
    model(x).sum().backward()
    optimizer.step()
for x in loader:
    update(x)
"""
    )
    assert [path.entry for path in run(source).paths] == ["<module>"]


def test_a_window_of_two_is_shown_at_both_parities():
    source = (
        SETUP
        + """
for i, x in enumerate(loader):
    model(x).sum().backward()
    if (i + 1) % 2 == 0:
        optimizer.step()
"""
    )
    lengths = {
        event.batches
        for path in run(source).paths
        for event in path.trace
        if event.kind == "epoch-end"
    }
    assert {length % 2 for length in lengths} == {0, 1}


def test_too_many_steps_are_a_problem(monkeypatch):
    monkeypatch.setattr(entries, "BUDGET", 8)
    assert problems(SETUP + LOOP) == ["`<module>` takes too many steps to follow"]
    assert run(SETUP + LOOP).paths == []


def test_too_many_paths_are_a_problem(monkeypatch):
    monkeypatch.setattr(entries, "FILE_BUDGET", 30)
    monkeypatch.setattr(entries, "BUDGET", 30)
    source = SETUP + LOOP + "\nif a:\n    optimizer.step()\nif b:\n    optimizer.step()"
    assert "the file has more paths than are followed" in problems(source)


def test_too_deep_a_nesting_is_a_problem():
    source = SETUP + "f = lambda x: f(x)\nf(1)\noptimizer.step()"
    assert problems(source) == ["`<module>` is nested too deeply to follow"]


def test_names_of_other_modules_in_which_events_happen(tmp_path):
    helper = """
def outer(loss, o):
    inner(loss, o)
def inner(loss, o):
    loss.backward()
    o.step()
"""
    source = (
        SETUP + "from helper import outer\nfor x in loader:\n    outer(model(x).sum(), optimizer)"
    )
    (path,) = run(source, files={"helper.py": helper}, folder=tmp_path).paths
    assert sum(event.kind == "step" for event in path.trace) == 3


def test_nothing_happens_in_a_file_without_training():
    assert run("x = 1\nprint(x)").paths == []
