import os
import stat
from dataclasses import replace

import pytest

from instep.rules.finding import Finding, Related, Severity
from instep.trace import Place
from instep.watching import ranks as module
from instep.watching.apart import Ending
from instep.watching.ranks import Heard, Ranks, merged, ranks_of

PLACE = Place("a.py", 3, column=4, function="main")
FOUND = Finding(
    "INS101", "missing-zero-grad", Severity.ERROR, PLACE, "m.",
    related=(Related(Place("a.py", 4), "stepped here"),),
)  # fmt: skip
OTHER = Finding("INS602", "zero-fill", Severity.INFO, Place("a.py", 9), "z.")
NOBODY = 2**22 + 1  # above what Linux gives to a process


@pytest.fixture
def pair(tmp_path):
    return [Ranks(rank, 2, rank, 2, tmp_path) for rank in range(2)]


def test_what_a_rank_says_is_heard(pair):
    first, second = pair
    first.say([FOUND], is_over=False)
    second.say([FOUND, OTHER], is_over=True)
    heard = first.hear()
    assert heard == [
        Heard(0, os.getpid(), is_over=False, findings=(FOUND,)),
        Heard(1, os.getpid(), is_over=True, findings=(FOUND, OTHER)),
    ]
    assert [each.message for each in merged(heard)] == ["m.", "z. (on rank 1)"]


@pytest.mark.parametrize("weights", [(), (1.5, -0.25, 3.0)])
def test_how_a_rank_has_ended_is_heard(pair, weights):
    endings = {"optimizer": Ending(9, 10, False, True, weights)}
    pair[1].say([], is_over=True, endings=endings)
    [heard] = pair[0].hear()
    assert heard.endings == endings


def test_a_finding_about_ranks_names_them_by_itself():
    about = replace(FOUND, code="INS606")
    heard = [Heard(n, 1, is_over=True, findings=() if n else (about,)) for n in range(3)]
    assert merged(heard) == (about,)


def test_a_finding_of_some_ranks_says_which():
    heard = [Heard(n, 1, is_over=True, findings=(FOUND,) if n else ()) for n in range(3)]
    assert merged(heard)[0].message == "m. (on ranks 1, 2)"


def test_the_first_waits_for_nobody_who_is_dead(pair, monkeypatch):
    first, second = pair
    first.say([], is_over=True)
    with monkeypatch.context() as patched:
        patched.setattr(module.os, "getpid", lambda: NOBODY)
        second.say([FOUND], is_over=False)
    monkeypatch.setattr(module, "sleep", lambda _: pytest.fail("it waits"))
    assert [each.rank for each in first.wait()] == [0, 1]


def test_the_first_waits_for_those_who_live_but_not_for_ever(pair, monkeypatch):
    first, second = pair
    first.say([], is_over=True)
    second.say([], is_over=False)
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            second.say([OTHER], is_over=True)

    monkeypatch.setattr(module, "sleep", nap)
    assert [each.is_over for each in first.wait(patience=1e9)] == [True, True]
    second.say([], is_over=False)
    assert [each.is_over for each in first.wait(patience=-1)] == [True, False]


def test_a_rank_is_heard_or_left_to_tell_by_itself(tmp_path):
    ranks = [Ranks(4 + n, 8, n, 4, tmp_path) for n in range(4)]
    ranks[0].say([FOUND], is_over=True)
    ranks[1].say([], is_over=True)
    ranks[2].say([], is_over=False)  # and nothing is known of the last one
    assert not ranks[1].is_left_alone
    unheard = ranks[0].unheard(ranks[0].hear())
    assert unheard == [6, 7]
    ranks[3].say([OTHER], is_over=True)  # just now
    assert not ranks[3].is_left_alone
    assert not ranks[0].give_up(unheard)
    assert ranks[0].unheard(heard := ranks[0].hear()) == [6]
    assert not ranks[0].is_last(heard)
    assert ranks[0].tells(FOUND)
    ranks[2].say([FOUND, OTHER], is_over=True)
    assert ranks[2].is_left_alone
    assert [each for each in (FOUND, OTHER) if ranks[2].tells(each)] == [OTHER]
    assert ranks[2].is_last(ranks[2].hear())
    ranks[2].forget()
    assert not tmp_path.exists()


def test_whoever_finds_no_folder_any_more_was_heard(pair):
    pair[1].say([], is_over=True)
    pair[0].forget()
    assert not pair[1].is_left_alone


def test_half_a_file_is_not_heard(pair):
    first, _ = pair
    first.say([FOUND], is_over=True)
    (first.folder / "1.json").write_text('{"rank": 1, "findings"')
    (first.folder / "2.json").write_text('{"rank": 1}')
    assert [each.rank for each in first.hear()] == [0]


def test_the_folder_is_one_for_all_of_a_launcher_and_private(monkeypatch, tmp_path):
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    base = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    ranks = [ranks_of({**base, "RANK": str(2 + n), "LOCAL_RANK": str(n)}) for n in range(2)]
    assert ranks[0].folder == ranks[1].folder
    assert stat.S_IMODE(ranks[0].folder.stat().st_mode) == 0o700
    assert [each.is_first for each in ranks] == [True, False]
    assert [each.prefix for each in ranks] == ["rank 2: ", "rank 3: "]
    again = ranks_of({**base, "RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert again.folder != ranks[0].folder
    ranks[0].say([], is_over=True)
    ranks[0].forget()
    assert not ranks[0].folder.exists()


def test_a_folder_of_somebody_else_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    environ = {
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1",
    }  # fmt: skip
    folder = ranks_of(environ).folder
    folder.rmdir()
    folder.symlink_to(tmp_path)
    alone = ranks_of(environ)
    assert alone.folder is None
    assert alone.is_first  # so it speaks for itself
    assert alone.prefix == "rank 1: "


def test_variables_that_say_nothing():
    assert ranks_of({"WORLD_SIZE": "two", "RANK": "0"}) == Ranks()
