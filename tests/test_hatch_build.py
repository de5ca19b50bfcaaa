"""The build that is compiled is opt-in, and what it compiles stays such that it can be."""

import ast
import builtins
from pathlib import Path

import pytest

import hatch_build
from hatch_build import AS_THEY_ARE, EXECUTOR, CompiledExecutor, bound_once, sources

ROOT = Path(__file__).parent.parent


@pytest.fixture
def hook(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("INSTEP_COMPILED", raising=False)
    return CompiledExecutor(str(ROOT), {}, None, None, str(ROOT / "dist"), "wheel")


@pytest.fixture
def compiled(monkeypatch):
    """Return what was asked to be compiled; a compiler takes a minute."""
    asked = []

    def fake(folder, modules):
        asked.extend(modules)
        return {str(folder / "lib/instep/a.so"): "instep/a.so"}

    monkeypatch.setattr(hatch_build, "compile_into", fake)
    return asked


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_is_compiled_unless_it_is_asked_for(hook, compiled, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("INSTEP_COMPILED", value)
    data = {"force_include": {}}
    hook.initialize("standard", data)
    hook.finalize("standard", data, "instep.whl")
    assert (hook.dependencies(), data, compiled) == ([], {"force_include": {}}, [])


def test_what_is_compiled_comes_into_the_wheel(hook, compiled, monkeypatch):
    monkeypatch.setenv("INSTEP_COMPILED", "1")
    data = {"force_include": {}}
    hook.initialize("standard", data)
    assert compiled == sources()
    assert list(data.pop("force_include").values()) == ["instep/a.so"]
    assert data == {"pure_python": False, "infer_tag": True}
    folder = hook.folder
    assert folder.is_dir()
    hook.finalize("standard", data, "instep.whl")
    assert not folder.exists()


def test_an_editable_install_is_not_compiled(hook, compiled, monkeypatch):
    monkeypatch.setenv("INSTEP_COMPILED", "1")
    hook.initialize("editable", {"force_include": {}})
    assert compiled == []


def test_its_tools_are_pinned(hook, monkeypatch):
    monkeypatch.setenv("INSTEP_COMPILED", "1")
    assert [tool.partition("==")[0] for tool in hook.dependencies()] == ["mypy", "setuptools"]


def test_what_stays_as_it_is_is_there():
    assert {path.stem for path in (ROOT / EXECUTOR).glob("*.py")} > AS_THEY_ARE


def executor() -> dict[str, ast.Module]:
    paths = sorted((ROOT / EXECUTOR).glob("*.py"))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    return {name: ast.parse(text) for name, text in texts.items() if name not in AS_THEY_ARE}


@pytest.mark.parametrize(("name", "tree"), executor().items())
def test_what_is_compiled_can_be(name, tree):
    """mypyc computes a `cached_property` at each look, and derives from few builtins."""
    for node in ast.walk(tree):
        assert getattr(node, "id", None) != "cached_property", f"{name}:{node.lineno}"
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                kind = getattr(builtins, getattr(base, "id", ""), Exception)
                assert issubclass(kind, BaseException), f"{name}:{node.lineno}"


@pytest.mark.parametrize(("name", "tree"), executor().items())
def test_what_may_be_of_three_kinds_gets_its_none_in_init(name, tree):
    """mypyc leaves such an attribute undefined where a class gives it None."""
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for given in (node for node in cls.body if isinstance(node, ast.AnnAssign)):
            is_none = isinstance(given.value, ast.Constant) and given.value.value is None
            kinds = ast.unparse(given.annotation).count("|") + 1
            assert not (is_none and kinds > 2), f"{name}:{given.lineno}"


BY_THE_TREE = {"_atom", "_is_over_items", "item", "test"}
"""They call themselves for a node inside a node, or for one value more."""


@pytest.mark.parametrize(("name", "tree"), executor().items())
def test_what_calls_itself_is_bounded(name, tree):
    """Compiled, a function that calls itself without end takes the process with it."""
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        called = {call.func for call in ast.walk(function) if isinstance(call, ast.Call)}
        calls_itself = any(getattr(func, "id", None) == function.name for func in called)
        marks = {getattr(mark, "id", None) for mark in function.decorator_list}
        is_bounded = "goes_down" in marks or function.name in BY_THE_TREE
        assert is_bounded or not calls_itself, f"{name}.{function.name}"


BEFORE = """\
from __future__ import annotations
import ast
Kind = ast.If | ast.For
_V = TypeVar("_V")
MOST = 3
WORDS = frozenset({"ä", "b"})
TABLE: dict[type, int] = {}

def ask(node: ast.If) -> ast.expr | None:
    found: ast.Name | None = None
    for one, two in zip("ä", [], strict=True):
        if isinstance(one, ast.Name | ast.Attribute | str) or type(two) is ast.If:
            return ast.unparse(one)
    match node:
        case ast.If():
            return found
"""
AFTER = """\
Kind = ast.If | ast.For
_V = TypeVar("_V")
MOST = 3
WORDS: _F = frozenset({"ä", "b"})
TABLE: _F[dict[type, int]] = {}

def ask(node: ast.If) -> ast.expr | None:
    found: ast.Name | None = None
    for one, two in zip("ä", []):
        if isinstance(one, (_ast_Name, _ast_Attribute, str)) or type(two) is _ast_If:
            return ast.unparse(one)
    match node:
        case ast.If():
            return found
"""


def test_what_is_looked_up_is_bound_once():
    head, again, *rest = bound_once(BEFORE).split("\n")
    assert head.split("; ") == [
        "from __future__ import annotations",
        "from typing import Final as _F",
        "import ast",
        *(f"_ast_{name}: _F = ast.{name}" for name in ("Name", "Attribute", "If")),
    ]
    assert (again, "\n".join(rest)) == ("import ast", AFTER)


@pytest.mark.parametrize("name", sorted(set(executor())))
def test_what_is_compiled_is_on_the_lines_where_it_is_written(name):
    text = (ROOT / EXECUTOR / f"{name}.py").read_text(encoding="utf-8")
    made = bound_once(text)
    functions = [
        [(node.name, node.lineno, node.end_lineno) for node in ast.walk(ast.parse(each))
         if isinstance(node, ast.FunctionDef)]
        for each in (text, made)
    ]  # fmt: skip
    assert functions[0] == functions[1]
    assert len(made.split("\n")) == len(text.split("\n"))
