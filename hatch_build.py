"""The opt-in build that is compiled: `INSTEP_COMPILED=1 pip install .`

mypyc makes C of the executor, where `instep check` spends its time. The wheel has the same Python
files as any other, and beside some of them what they were compiled to, which Python prefers.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterator

EXECUTOR = Path("src/instep/check/execute")
BESIDE = (Path("src/instep/trace/rebuild.py"), Path("src/instep/trace/trees.py"))
"""What the rules ask for each trace, event by event, and of a whole text, node by node."""
AS_THEY_ARE = frozenset({"__init__", "levels", "ticks"})
"""Kinds of `int`, and closures that count: mypyc knows neither."""
TOOLS = ("mypy", "setuptools")
IN_ITSELF = ["-fno-plt", "-fno-semantic-interposition", "-fvisibility=hidden"]
"""Nobody outside puts a function in the place of one in here: calls need no detour."""
_FINAL = (ast.Call, ast.Constant, ast.Dict, ast.DictComp, ast.Set)
Span = tuple[int, int, int]
"""A line, and the columns of its bytes."""


class CompiledExecutor(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles where it is asked to, and otherwise does nothing."""

    folder: Path | None = None  # where what was made lies until the wheel is written

    def dependencies(self) -> list[str]:
        """Return what compiling needs, in the versions that this repository is tested with."""
        pinned = (Path(self.root) / "constraints.txt").read_text(encoding="utf-8")
        return re.findall(rf"^(?:{'|'.join(TOOLS)})==.*$", pinned, re.MULTILINE) * is_asked_for()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the results into the wheel; an editable install stays as it is."""
        if version == "editable" or not is_asked_for():
            return
        self.folder = Path(tempfile.mkdtemp(prefix="instep-compiled-"))
        with chdir(self.root):
            built = compile_into(self.folder, sources())
        build_data["force_include"].update(built)
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Take away what the wheel holds by now."""
        if self.folder is not None:
            shutil.rmtree(self.folder)


def is_asked_for() -> bool:
    """Say whether the environment asks for a compiled build."""
    return os.environ.get("INSTEP_COMPILED", "0") not in {"", "0"}


def sources() -> list[str]:
    """Return the modules that are compiled, seen from the root of the repository."""
    modules = sorted(path for path in EXECUTOR.glob("*.py") if path.stem not in AS_THEY_ARE)
    return [path.as_posix() for path in (*modules, *BESIDE)]


def compile_into(folder: Path, modules: list[str]) -> dict[str, str]:
    """Compile, and return the place in a wheel of every file that was made."""
    # Here, since a build that is not compiled has neither of them.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    # Types are checked by `make types`; here they are only used, and those of other packages are
    # of no use: nothing of theirs is compiled.
    options = ["--config-file=", f"--cache-dir={os.devnull}", "--follow-imports=skip"]
    with chdir(_prepared(folder / "prepared", modules)):
        extensions = mypycify(
            [*options, *modules], target_dir=str(folder / "c"), group_name="instep", debug_level="0"
        )
    if os.name == "posix":
        for extension in extensions:
            extension.extra_compile_args += IN_ITSELF
            extension.extra_link_args += ["-Wl,-Bsymbolic"] if sys.platform == "linux" else []
    compiler = Distribution({"name": "instep", "ext_modules": extensions}).get_command_obj(
        "build_ext"
    )
    compiler.build_lib, compiler.build_temp = str(folder / "lib"), str(folder / "objects")
    compiler.ensure_finalized()
    compiler.run()
    made = [path for path in (folder / "lib").rglob("*") if path.is_file()]
    return {str(path): path.relative_to(folder / "lib").as_posix() for path in made}


def _prepared(folder: Path, modules: list[str]) -> Path:
    """Write the modules as they are compiled into a folder, and return it."""
    for module in map(Path, modules):
        (folder / module.parent).mkdir(parents=True, exist_ok=True)
        text = bound_once(module.read_text(encoding="utf-8"))
        (folder / module).write_text(text, encoding="utf-8")
        for package in (module.parent, *module.parent.parents):
            if (package / "__init__.py").is_file():
                (folder / package / "__init__.py").touch()
    return folder


def bound_once(text: str) -> str:
    r"""Return a module as it is compiled: on the same lines, and what it looks up is bound once.

    What a module holds is looked up by its name at each use, unless it is `Final`: then it is a
    variable of C. So the classes of `ast` get names, and constants become final; numbers do not,
    because tests put others in their place. A union is made anew at each `isinstance`, a tuple is
    not; and a `zip` that is strict, which matters to whoever makes a mistake, is no loop of C.

    >>> print(bound_once("from __future__ import x\nY = {0}\nisinstance(Y, ast.If | str)"))
    from __future__ import x; from typing import Final as _F; import ast; _ast_If: _F = ast.If
    Y: _F = {0}
    isinstance(Y, (_ast_If, str))
    """
    tree = ast.parse(text)
    future = next(node for node in tree.body if getattr(node, "module", "") == "__future__")
    used = list(_classes(tree))
    bound = {"": "from typing import Final as _F", **({"ast": "import ast"} if used else {})}
    edits = [*_calls(tree), *_constants(tree)]
    for node in used:
        bound[node.attr] = f"_ast_{node.attr}: _F = ast.{node.attr}"
        edits.append((_span(node, node), f"_ast_{node.attr}"))
    edits.append((_span(future, None), "".join(f"; {statement}" for statement in bound.values())))
    lines = [line.encode() for line in text.split("\n")]
    for (line, start, end), new in sorted(edits, reverse=True):
        lines[line - 1] = lines[line - 1][:start] + new.encode() + lines[line - 1][end:]
    return b"\n".join(lines).decode()


def _span(after: ast.expr | ast.stmt, until: ast.expr | None) -> Span:
    """Return the line and the columns of a node; of what is between two; of what is behind one."""
    end = after.end_col_offset or 0
    if after is until:
        return after.lineno, after.col_offset, end
    return after.end_lineno or 0, end, end if until is None else until.col_offset


def _classes(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield where classes of `ast` are used: not where they are types or patterns."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        return  # a name for a type
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "cls"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Attribute) and getattr(child.value, "id", None) == "ast":
                if child.attr[0].isupper():
                    yield child
            elif isinstance(child, ast.AST):
                yield from _classes(child)


def _calls(tree: ast.Module) -> Iterator[tuple[Span, str]]:
    """Yield what makes `isinstance(x, A | B)` to `isinstance(x, (A, B))`, and takes `strict` from
    `zip`.
    """
    for call in ast.walk(tree):
        name = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or name not in {"isinstance", "zip"}:
            continue
        if name == "zip":
            last, strict = call.args[-1], call.keywords[-1].value
            yield ((last.end_lineno or 0, last.end_col_offset or 0, strict.end_col_offset or 0), "")
            continue
        part = whole = call.args[1]
        if not isinstance(part, ast.BinOp) or whole.lineno != whole.end_lineno:
            continue
        yield (_span(whole, None), ")")
        while isinstance(part, ast.BinOp):
            yield (_span(part.left, part.right), ", ")
            part = part.left
        yield ((part.lineno, part.col_offset, part.col_offset), "(")


def _constants(tree: ast.Module) -> Iterator[tuple[Span, str]]:
    """Yield what makes the constants of a module final."""
    for node in tree.body:
        made = getattr(node, "value", None)
        if not isinstance(made, _FINAL) or "TypeVar" in ast.unparse(made):
            continue
        if isinstance(made, ast.Constant) and not isinstance(made.value, str):
            continue
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield (_span(node.targets[0], None), ": _F")
        elif isinstance(node, ast.AnnAssign):
            kind = node.annotation
            yield ((kind.lineno, kind.col_offset, kind.col_offset), "_F[")
            yield ((kind.end_lineno or 0, kind.end_col_offset or 0, kind.end_col_offset or 0), "]")
