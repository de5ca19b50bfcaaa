"""Mends without a checker: findings made by hand, fixes as the text that they leave."""

import ast
from importlib import import_module

from instep.check.rewriting import apply
from instep.rules.finding import Finding
from instep.rules.source import Source
from instep.trace import Place


class Text:
    """A source whose places are found by the code that stands there."""

    def __init__(self, text):
        self.text = text
        tree = ast.parse(text)
        self.places = {}
        nodes = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.expr | ast.stmt):
                place = Place(
                    "a.py", node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
                )
                code = ast.get_source_segment(text, node)
                self.places.setdefault(code, [])
                if place not in self.places[code]:
                    self.places[code].append(place)
                # Of an expression statement and its call, the call is what an event names.
                if isinstance(node, ast.Call) or place not in nodes:
                    nodes[place] = node
        self.source = Source(text, tree, nodes)
        self.tree = tree

    def at(self, code, number=0):
        return sorted(self.places[code], key=lambda place: place.line)[number]

    def statement(self, code, number=0):
        return self.source.statement_at(self.at(code, number))


def candidates(rule, text, event, *evidence):
    """The texts that a rule's fixes leave; events are pairs of a function of a place and code."""
    shown = Text(text)
    events = [make(place=shown.at(*where)) for make, *where in (event, *evidence)]
    module = import_module(f"instep.rules.{rule}")
    finding = Finding(
        module.CODE,
        module.NAME,
        module.SEVERITY,
        events[0].place,
        "It is.",
        evidence=tuple(events),
    )
    texts = []
    for fix in module.mend(finding, shown.source):
        texts.append(apply(text, fix.edits))
        ast.parse(texts[-1])
    return texts
