import ast

from instep.check.execute import tables
from instep.check.execute.machine import BUILTINS, EVALUATE, EXECUTE


def test_every_expression_and_statement_has_somebody_who_executes_it():
    assert set(ast.expr.__subclasses__()) <= set(EVALUATE)
    assert set(ast.stmt.__subclasses__()) <= set(EXECUTE)


def test_a_name_is_in_the_table_of_calls_once():
    names = [name for group in tables._CALLS.values() for name in group]
    assert len(names) == len(set(names))


def test_builtins_are_those_of_python():
    assert set(BUILTINS) - {"__name__"} <= set(dir(__builtins__)) | set(__builtins__)


def test_installing_twice_changes_nothing():
    before = dict(EVALUATE)
    tables.install()
    assert before == EVALUATE
