"""The opt-in build that is compiled: `INSTEP_COMPILED=1 pip install .`

mypyc makes C of the executor, where `instep check` spends its time. The wheel has the same Python
files as any other, and beside some of them what they were compiled to, which Python prefers.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXECUTOR = Path("src/instep/check/execute")
AS_THEY_ARE = frozenset({"__init__", "levels", "ticks"})
"""Kinds of `int`, and closures that count: mypyc knows neither."""
TOOLS = ("mypy", "setuptools")


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
    modules = sorted(EXECUTOR.glob("*.py"))
    return [path.as_posix() for path in modules if path.stem not in AS_THEY_ARE]


def compile_into(folder: Path, modules: list[str]) -> dict[str, str]:
    """Compile, and return the place in a wheel of every file that was made."""
    # Here, since a build that is not compiled has neither of them.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    # Types are checked by `make types`; here they are only used, and those of other packages are
    # of no use: nothing of theirs is compiled.
    options = ["--config-file=", f"--cache-dir={os.devnull}", "--follow-imports=skip"]
    extensions = mypycify(
        [*options, *modules], target_dir=str(folder / "c"), group_name="instep", debug_level="0"
    )
    compiler = Distribution({"name": "instep", "ext_modules": extensions}).get_command_obj(
        "build_ext"
    )
    compiler.build_lib, compiler.build_temp = str(folder / "lib"), str(folder / "objects")
    compiler.ensure_finalized()
    compiler.run()
    made = [path for path in (folder / "lib").rglob("*") if path.is_file()]
    return {str(path): path.relative_to(folder / "lib").as_posix() for path in made}
