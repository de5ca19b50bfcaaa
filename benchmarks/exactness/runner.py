"""Give every scenario to every peer and turn the outcomes into cells."""

import contextlib
import io
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.exactness.peers import Answers, NotSupportedError, Peer
from benchmarks.exactness.reference import relative_error
from benchmarks.exactness.scenarios import Scenario
from benchmarks.report import table

EXACT = 1e-12


@dataclass(frozen=True)
class Outcome:
    """What one peer made of one scenario: an error, or a word for why there is none."""

    engine: str
    scenario: str
    error: float | None = None
    note: str = ""
    detail: str = ""

    @property
    def cell(self) -> str:
        """`ok`, two digits, or the note."""
        if self.error is None:
            return self.note
        if math.isnan(self.error):
            return "NaN"
        if self.error < EXACT:
            return "ok"
        return f"{self.error:.2f}".lstrip("0") if self.error >= 0.01 else f"{self.error:.0e}"

    def as_dict(self) -> dict[str, object]:
        """For JSON, with the number behind an `ok`."""
        return asdict(self) | {"cell": self.cell}


class MissingPeerError(Exception):
    """A peer's package cannot be imported and the caller insisted on it."""


def run(
    peers: Iterable[Peer], scenarios: Sequence[Scenario], *, require_peers: bool = False
) -> Iterator[Outcome]:
    """All outcomes, peer by peer. Nothing a peer does can stop the run, nor be hidden by it."""
    for peer in peers:
        try:
            answers = peer.answers()
        except Exception as raised:
            note = _why_missing(raised)
            if require_peers:
                raise MissingPeerError(f"{peer.module}: {note}") from raised
            for row in peer.rows:
                yield from (Outcome(row, each.title, None, note, str(raised)) for each in scenarios)
            continue
        for row, loops in zip(peer.rows, answers, strict=True):
            yield from (_attempt(row, loops, scenario) for scenario in scenarios)


def _why_missing(raised: Exception) -> str:
    if not isinstance(raised, ModuleNotFoundError) or raised.name is None:
        return f"not available: {type(raised).__name__}"
    if raised.name.startswith("benchmarks"):
        # Not a peer's absence but a hole in this program.
        raise raised
    return f"not installed: {raised.name}"


def markdown(outcomes: Iterable[Outcome]) -> str:
    """One row per engine, one column per scenario, in the order of the outcomes."""
    rows: dict[str, dict[str, str]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.engine, {})[outcome.scenario] = outcome.cell
    header = list(next(iter(rows.values())))
    cells = ([engine, *(row[title] for title in header)] for engine, row in rows.items())
    return table(["engine", *header], cells)


def _attempt(engine: str, loops: Answers, scenario: Scenario) -> Outcome:
    loop = loops.get(scenario.kind)
    if loop is None:
        return Outcome(engine, scenario.title, note="–")
    # Trainers print progress and metrics; the table is the only output of this program.
    silence = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(silence),
            contextlib.redirect_stderr(silence),
        ):
            warnings.simplefilter("ignore")
            trained = loop(scenario, scenario.fresh_model())
    except NotSupportedError as reason:
        return Outcome(engine, scenario.title, note="not supported", detail=str(reason))
    except Exception as raised:
        return Outcome(engine, scenario.title, note=type(raised).__name__, detail=str(raised))
    return Outcome(engine, scenario.title, error=relative_error(trained, scenario))
