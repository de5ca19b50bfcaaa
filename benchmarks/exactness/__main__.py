"""`python -m benchmarks.exactness`: run the real packages and print the two tables."""

import argparse
import json
import sys

import torch

from benchmarks.exactness.peers import PEERS
from benchmarks.exactness.runner import MissingPeerError, Outcome, markdown, run
from benchmarks.exactness.scenarios import ragged, situations
from benchmarks.report import versions, write_section

PACKAGES = ("torch", "accelerate", "lightning", "transformers", "mosaicml")


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when the tables were made, 1 if a check failed, 2 if a required peer is missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    peers = [peer for peer in PEERS if not options.only or peer.module in options.only]
    try:
        first = list(run(peers, ragged(), require_peers=options.require_peers))
        second = list(run(peers, situations(), require_peers=options.require_peers))
    except MissingPeerError as missing:
        print(f"a peer is missing: {missing}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([outcome.as_dict() for outcome in (*first, *second)], indent=2))
        return 0
    body = _body(first, second)
    print(body)
    if options.verbose:
        print(*("", *(_line(outcome) for outcome in (*first, *second))), sep="\n")
    if options.write:
        write_section("exactness", body)
    inexact = [each for each in (*first, *second) if "instep" in each.engine and each.cell != "ok"]
    if options.check and inexact:
        print(*(f"not exact: {_line(outcome)}" for outcome in inexact), sep="\n", file=sys.stderr)
        return 1
    return 0


def _body(first: list[Outcome], second: list[Outcome]) -> str:
    return "\n\n".join(
        (markdown(first), "And these:", markdown(second), f"Versions: {versions(PACKAGES)}.")
    )


def _line(outcome: Outcome) -> str:
    value = outcome.note if outcome.error is None else f"{outcome.error:.3e}"
    return f"{outcome.engine}: {outcome.scenario}: {value} {outcome.detail}".rstrip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="add every number, also below ok")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON instead")
    parser.add_argument("--write", action="store_true", help="put the tables into the README")
    parser.add_argument("--require-peers", action="store_true", help="a missing peer is an error")
    parser.add_argument("--check", action="store_true", help="an inexact cell of ours is an error")
    parser.add_argument(
        "--only", nargs="+", metavar="PEER", choices=[peer.module for peer in PEERS]
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
