"""The house rules that a reader should be able to rely on."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import instep
from instep import errors
from instep.explain import topics

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "instep"
MODULES = sorted(SOURCE.rglob("*.py"))
# Who may import whom, besides the standard library. `instep` itself stands for errors and explain.
MAY_IMPORT = {
    "trace": set(),
    "rules": {"trace"},
    "check": {"errors", "rules", "trace"},
    "reports": {"rules", "trace"},
    "errors": set(),
    "explain": set(),
    "splits": {"errors", "torch", "numpy", "rasterio"},
    "fast": {"errors", "torch", "triton"},
    "checkpoint": {"errors", "torch"},
    "engine": {"checkpoint", "errors", "fast", "trace", "splits", "torch", "numpy"},
    "testing": {"engine", "torch"},
    "distributed": {"engine", "errors", "torch"},
    "watching": {"errors", "reports", "rules", "trace", "torch"},
    "symptoms": set(),
    "commands": {
        "check",
        "errors",
        "explain",
        "instep",
        "reports",
        "rules",
        "symptoms",
        "trace",
        "watching",
    },
    "cli": {"commands", "errors"},
    "__main__": {"cli"},
    "__init__": {"engine", "errors", "fast", "splits", "trace", "watching"},
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms and packages that a module names in any import, lazily or not."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "instep":
                names = [
                    f"instep.{alias.name}" if alias.name != "__version__" else "instep"
                    for alias in node.names
                ]
        for name in names:
            parts = name.split(".")
            if parts[0] == "instep":
                found.add(parts[1] if len(parts) > 1 else "instep")
            elif parts[0] not in sys.stdlib_module_names:
                found.add(parts[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path):
    own = room(path)
    assert imported(path) <= MAY_IMPORT[own] | {own}


def test_importing_instep_imports_no_torch():
    code = (
        "import sys, instep, instep.cli, instep.trace, instep.errors, instep.rules; "
        "import instep.reports, instep.check.sources; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; "
        "instep.Stepper; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None; import instep\n"
        "try: instep.Stepper\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'instep[torch]'" in done.stdout


def test_the_surface():
    """A new public name is a decision: add it here, with a sentence and an example in its docs."""
    assert instep.__all__ == [
        "InstepError",
        "InstepWarning",
        "Job",
        "Micro",
        "Patches",
        "RandomPatches",
        "Stepper",
        "Trace",
        "Update",
        "Verification",
        "Window",
        "fuse",
        "ledger",
        "stitch",
        "unfuse",
        "verify",
        "watch",
    ]
    assert all(getattr(instep, name).__doc__ for name in instep.__all__)
    assert {*instep.__all__, "errors", "testing", "trace"} <= set(dir(instep))
    with pytest.raises(AttributeError, match="no attribute 'stepper'"):
        _ = instep.stepper


def test_modules_and_functions_stay_short():
    for path in MODULES:
        text = path.read_text()
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= 60, f"{path}: {node.name} has {length} lines"


def test_every_page_an_error_points_to_exists():
    named = set()
    for path in MODULES:
        named |= set(re.findall(r'more="([a-z-]+)"', path.read_text()))
    assert named
    assert named <= set(topics())
    # And no page that nothing points to, but those that are read before anything goes wrong.
    assert set(topics()) <= named | {"porting", "kept-gradients", "unused-suppression"}


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.InstepError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_have_four_lines_and_survive_pickling(kind):
    error = kind("what happened.", why="a reason.", fix="a way out.", more="items")
    assert str(error).splitlines() == [
        "what happened.",
        "  why:  a reason.",
        "  fix:  a way out.",
        "  more: instep explain items",
    ]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert kind.__name__ in errors.__doc__
