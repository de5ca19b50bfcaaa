import math

import pytest

from benchmarks.exactness.peers import PEERS, NotSupportedError, Peer
from benchmarks.exactness.runner import MissingPeerError, Outcome, markdown, run
from benchmarks.exactness.scenarios import Kind, ragged

EQUAL = ragged()[:1]


def peer(answers):
    class Given(Peer):
        def answers(self):
            if isinstance(answers, Exception):
                raise answers
            return (answers,)

    return Given("given", "given", ("the row",))


def outcome(answers, **options):
    (only,) = run([peer(answers)], EQUAL, **options)
    return only


@pytest.mark.parametrize(
    ("error", "cell"),
    [(1e-13, "ok"), (0.0, "ok"), (0.306, ".31"), (2.66, "2.66"), (6.2e-7, "6e-07")],
)
def test_cells(error, cell):
    assert Outcome("e", "s", error=error).cell == cell


def test_nan_is_never_ok():
    assert Outcome("e", "s", error=math.nan).cell == "NaN"


def test_an_exception_shows_its_name():
    def broken(scenario, model):
        raise ZeroDivisionError("float division by zero")

    shown = outcome({Kind.EPOCH: broken})
    assert (shown.cell, shown.detail) == ("ZeroDivisionError", "float division by zero")


def test_not_supported_and_not_tried_differ():
    def cannot(scenario, model):
        raise NotSupportedError

    assert outcome({Kind.EPOCH: cannot}).cell == "not supported"
    assert outcome({}).cell == "–"


def test_a_missing_package_is_a_note_or_an_error():
    missing = ModuleNotFoundError("No module named 'given'", name="given")
    assert outcome(missing).cell == "not installed: given"
    with pytest.raises(MissingPeerError, match="given"):
        outcome(missing, require_peers=True)


def test_a_package_that_cannot_be_imported_is_a_note_too():
    assert outcome(ImportError("cannot import name")).cell == "not available: ImportError"


def test_a_hole_in_the_benchmark_itself_is_not_a_missing_package():
    with pytest.raises(ModuleNotFoundError):
        outcome(ModuleNotFoundError("gone", name="benchmarks.exactness.peers.gone"))


def test_output_of_a_peer_stays_out_of_the_table(capsys):
    def noisy(scenario, model):
        print("{'train_runtime': 1}")
        return model

    assert outcome({Kind.EPOCH: noisy}).error == pytest.approx(1.0)
    assert capsys.readouterr().out == ""


def test_the_markdown_has_a_row_per_engine_and_a_column_per_scenario():
    outcomes = [
        Outcome("a", "x", error=0.0),
        Outcome("a", "y", error=0.5),
        Outcome("b", "x", note="not supported"),
        Outcome("b", "y", error=math.nan),
    ]
    assert markdown(outcomes).splitlines() == [
        "| engine | x | y |",
        "| --- | --- | --- |",
        "| a | ok | .50 |",
        "| b | not supported | NaN |",
    ]


def test_every_peer_has_a_file_of_its_own():
    assert len({peer.module for peer in PEERS}) == len(PEERS)
    assert {row for peer in PEERS for row in peer.rows}
