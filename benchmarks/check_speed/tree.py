"""The files that are checked: code of installed packages, and one training loop in ten files."""

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOPS_IN_TREE = 24
OTHERS_PER_LOOP = 9
# In 40 public repositories a file with a loop has 268 lines on average and one without 129. With
# these bounds the two kinds of file here have about those lengths, and so the work its right share.
LOOP_LINES, OTHER_LINES = range(1000), range(20, 340)
PACKAGES = ("accelerate", "composer", "lightning", "torch", "torchmetrics", "transformers")
# Whole training scripts among the files of the packages, so that not every loop here is ours.
SCRIPTS = (
    ("accelerate", "test_utils/scripts"),
    ("lightning", "pytorch/demos"),
    ("torch", "testing/_internal/distributed"),
)
# Every checker leaves these out by its own list: nobody is given what another would not read.
LEFT_OUT = {"build", "dist", "node_modules", "site-packages", "venv", "__pycache__"}


@dataclass(frozen=True)
class Tree:
    """A folder of Python files and what they add up to."""

    folder: Path
    files: int
    loop_files: int
    lines: int
    loop_lines: int

    @property
    def text(self) -> str:
        """`200 files, 50,000 lines; 20 files and 3,000 lines of them with a loop`."""
        return (
            f"{self.files:,} files, {self.lines:,} lines; "
            f"{self.loop_files:,} files and {self.loop_lines:,} lines of them with a training loop"
        )


def has_loop(source: bytes) -> bool:
    """Whether a training loop may be in it: the gradient is computed, and used or cleared."""
    return b"backward(" in source and (b".step(" in source or b"zero_grad" in source)


def loop_files() -> list[Path]:
    """Loops of this repository and of the packages, the longest first."""
    folders = [ROOT / "examples", ROOT / "tests" / "check" / "labelled"]
    folders += [home / inside for name, inside in SCRIPTS if (home := _home(name))]
    found = []
    for path in (path for folder in folders for path in _modules(folder)):
        source = _read(path)
        if has_loop(source) and _lines(source) in LOOP_LINES:
            found.append((-_lines(source), _stable_name(path), path))
    return [path for _, _, path in sorted(found)]


def other_files(count: int) -> list[Path]:
    """Modules without a loop, drawn from the packages by the hash of their names."""
    homes = [home for name in PACKAGES if (home := _home(name))]
    paths = [path for home in homes for path in _modules(home)]
    chosen: list[Path] = []
    for path in sorted(paths, key=lambda path: hashlib.sha256(_stable_name(path)).digest()):
        if len(chosen) == count:
            break
        source = _read(path)
        if _lines(source) in OTHER_LINES and not has_loop(source):
            chosen.append(path)
    return chosen


def mixed(into: Path) -> Tree:
    """One file in ten has a loop: the longest, because a script is not a snippet."""
    loops = loop_files()[:LOOPS_IN_TREE]
    return _numbered(into, [*loops, *other_files(len(loops) * OTHERS_PER_LOOP)])


def loops_alone(into: Path) -> Tree:
    """Every file with a loop that there is."""
    return _numbered(into, loop_files())


def copied(source: Path, into: Path, *, only_loops: bool = False) -> Tree:
    """The Python files of a project with their places kept, since imports are followed."""
    for path in _modules(source):
        inside = path.relative_to(source)
        if LEFT_OUT.isdisjoint(inside.parts) and not any(part[0] == "." for part in inside.parts):
            content = _read(path)
            if has_loop(content) or not only_loops:
                target = into / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
    return counted(into)


def counted(folder: Path) -> Tree:
    """What a folder holds."""
    sources = [_read(path) for path in _modules(folder)]
    loops = [source for source in sources if has_loop(source)]
    return Tree(folder, len(sources), len(loops), _total(sources), _total(loops))


def _numbered(into: Path, paths: Sequence[Path]) -> Tree:
    # Names that no checker has an opinion about: a folder named "build" would be left out.
    for number, path in enumerate(paths):
        part = into / f"part_{number % (OTHERS_PER_LOOP + 1)}"
        part.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, part / f"module_{number}.py")
    return counted(into)


def _home(package: str) -> Path | None:
    spec = find_spec(package)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def _modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if path.is_file())


def _stable_name(path: Path) -> bytes:
    """The same on every machine: what comes after the environment or the repository."""
    parts = path.parts
    if "site-packages" in parts:
        return "/".join(parts[parts.index("site-packages") + 1 :]).encode()
    return "/".join(path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else parts).encode()


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _lines(source: bytes) -> int:
    return source.count(b"\n")


def _total(sources: Iterable[bytes]) -> int:
    return sum(map(_lines, sources))
