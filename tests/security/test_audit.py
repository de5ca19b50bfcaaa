"""Every module of ours, read for ways to run, load or send what it should not."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import instep

SOURCE = Path(instep.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

LOADERS = {"pickle", "marshal", "shelve", "dill", "joblib", "yaml", "runpy", "code", "pty"}
NETWORK = {
    "socket", "socketserver", "ssl", "http", "urllib", "ftplib", "smtplib", "poplib", "imaplib",
    "telnetlib", "xmlrpc", "webbrowser", "asyncio", "requests", "httpx", "aiohttp", "urllib3",
}  # fmt: skip
STARTERS = {"subprocess"}
CALLS = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
METHODS = {"system", "popen", "execv", "execve", "execvp", "spawnv", "posix_spawn", "startfile"}
ALLOWED = {
    ("watching/launch.py", "exec"): "the program that `instep watch` is asked to run",
    ("watching/launch.py", "compile"): "the program that `instep watch` is asked to run",
    (
        "checkpoint/shards.py",
        "pickle",
    ): "an unpickler of a few classes, for a list of tensors",
    (
        "trace/plain.py",
        "exec",
    ): "constructors of our own classes, made of the names of their fields, as dataclasses does",
    (
        "watching/seams/processes.py",
        "subprocess",
    ): "what the watched program starts by it is counted; nothing is started",
    ("reports/sarif.py", "urllib"): "urllib.parse.quote, which writes addresses and opens none",
}
"""What is there, and why."""


def suspects(tree: ast.AST) -> set[str]:
    """Return names of what a module uses that could run, load or send something."""
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found |= {name.split(".")[0] for name in names} & (LOADERS | NETWORK | STARTERS)
        if isinstance(node, ast.Call):
            found |= _called(node)
    return found


def _called(node: ast.Call) -> set[str]:
    match node.func:
        case ast.Name(id=name) if name in CALLS:
            return {name}
        case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in METHODS:
            return {f"os.{name}"}
        case ast.Attribute(value=ast.Name(id="torch"), attr="load"):
            given = {word.arg: word.value for word in node.keywords}
            safe = given.get("weights_only")
            return (
                set() if isinstance(safe, ast.Constant) and safe.value is True else {"torch.load"}
            )
        case ast.Attribute(attr="import_module") | ast.Name(id="import_module"):
            return set() if _is_ours(node.args[0]) else {"import_module"}
    if any(
        word.arg in {"allow_pickle", "shell"} and not _is_false(word.value)
        for word in node.keywords
    ):
        return {"allow_pickle or shell"}
    return set()


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_ours(node: ast.expr) -> bool:
    """Say whether a name that is imported begins with "instep.", or comes from a table of ours."""
    match node:
        case (
            ast.Constant(value=str(text))
            | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])
        ):
            return text.startswith("instep.")
        case ast.Subscript(value=ast.Name(id=table)):
            return table.lstrip("_").isupper()
    return False


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_that_is_read_can_run(path):
    name = path.relative_to(SOURCE).as_posix()
    found = suspects(ast.parse(path.read_text()))
    assert found <= {what for where, what in ALLOWED if where == name}


def test_what_is_allowed_is_still_there():
    for name, what in ALLOWED:
        assert what in suspects(ast.parse((SOURCE / name).read_text()))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle", "from urllib.request import urlopen", "import http.client as c",
        "eval(text)", "exec(text)", "compile(text, '', 'exec')", "__import__(name)",
        "import subprocess", "os.system(text)", "os.popen(text)",
        "torch.load(path)", "torch.load(path, weights_only=False)", "torch.load(p, weights_only=w)",
        "import_module(name)", "importlib.import_module(f'{name}.x')", "import_module('other')",
        "numpy.load(path, allow_pickle=True)", "run(text, shell=True)",
    ],
)  # fmt: skip
def test_the_audit_has_teeth(code):
    assert suspects(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "torch.load(path, weights_only=True)", "import_module(f'instep.rules.{name}')",
        "re.compile(text)", "model.eval()", "import_module(_HOME[name])",
    ],
)  # fmt: skip
def test_the_audit_lets_pass(code):
    assert not suspects(ast.parse(code))


def test_no_script_and_no_style_of_a_page_reaches_out():
    for asset in (SOURCE / "reports" / "assets").iterdir():
        text = asset.read_text()
        for word in ("http:", "https:", "url(", "@import", "fetch(", "XMLHttp", "WebSocket",
                     "eval(", "innerHTML", "document.write", "import("):  # fmt: skip
            assert word not in text.replace("http://www.w3.org/2000/svg", ""), (asset.name, word)


def test_importing_what_needs_no_torch_imports_no_network():
    """A module that imports torch imports what torch imports; the others import nothing of it."""
    rooms = ("trace", "rules", "check", "reports", "commands", "cli.py", "errors.py", "explain.py")
    names = [
        ".".join(("instep", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in MODULES
        if path.relative_to(SOURCE).parts[0] in rooms and path.name != "__init__.py"
    ]
    unwanted = NETWORK - {"urllib"} | {"urllib.request", "torch", "pickle"}
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(sorted(set(sys.modules) & {unwanted!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
