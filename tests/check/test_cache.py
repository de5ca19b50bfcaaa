import json
import os
from pathlib import Path

import pytest

from instep.check import cache as caches
from instep.check.cache import Cache
from instep.check.config import Config
from instep.check.options import Settings
from instep.check.outcome import Outcome, Unjudged
from instep.check.problems import diagnose
from instep.rules import Edit, Finding, Fix, Related, Severity
from instep.trace import Place

PLACE = Place("a.py", 2, 0, 2, 5, "main", "x = 1", 3)
FINDING = Finding(
    "INS101",
    "missing-zero-grad",
    Severity.ERROR,
    PLACE,
    "it \udc80 adds up.",
    related=(Related(PLACE, "here"),),
    condition="when x",
    fix=Fix("mend it", (Edit(1, 0, 1, 0, "y\n"),), is_safe=False),
)
OUTCOMES = [
    Outcome("a.py"),
    Outcome("a.py", (FINDING,), (Unjudged(PLACE, "a generator"),), loops=2),
    Outcome("a.py", silenced=(FINDING,), elsewhere=(FINDING,)),
    Outcome("a.py", diagnostic=diagnose("python-2", PLACE, "print x")),
]


def settings(**changes):
    return Settings(Config(Path.cwd(), **changes), {"INS101": "missing-zero-grad", "INS102": "b"})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Cache(tmp_path / "c", settings())


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_is_put_in_comes_out(cache, outcome):
    assert cache.get("a.py", b"x") is None
    cache.put("a.py", b"x", outcome)
    assert cache.get("a.py", b"x") == outcome
    assert Cache(cache.folder, settings()).get("a.py", b"x") == outcome


def test_an_entry_holds_for_its_content_path_and_settings(cache, monkeypatch):
    cache.put("a.py", b"x", OUTCOMES[1])
    assert cache.get("a.py", b"y") is None
    assert cache.get("./a.py", b"x") is None
    other = settings(ignore=frozenset({"INS102"}))
    assert Cache(cache.folder, other).get("a.py", b"x") is None
    monkeypatch.setattr(caches, "_version", lambda: "another")
    assert cache.get("a.py", b"x") is None


def test_an_entry_holds_while_the_files_it_followed_do(cache):
    Path("utils.py").write_text("1")
    followed = (str(Path("utils.py").absolute()), str(Path("later.py").absolute()))
    cache.put("a.py", b"x", Outcome("a.py", followed=followed))

    def again():
        return Cache(cache.folder, settings()).get("a.py", b"x")

    assert again() is not None
    Path("later.py").write_text("")
    assert again() is None
    Path("later.py").unlink()
    assert again() is not None
    Path("utils.py").write_text("2")
    assert again() is None


def test_an_entry_holds_while_a_folder_has_the_same_names(cache):
    folder = Path("searched").absolute()
    folder.mkdir()
    cache.put("a.py", b"x", Outcome("a.py", followed=(str(folder),)))

    def again():
        return Cache(cache.folder, settings()).get("a.py", b"x")

    (folder / ".hidden").write_text("")
    assert again() is not None
    (folder / "README.md").write_text("")
    assert again() is None


def test_what_nobody_can_answer_for_is_not_kept(cache):
    cache.put("a.py", b"x", Outcome("a.py", followed=None))
    cache.put("b.py", b"x", Outcome("b.py", before=b"x", after=b"y"))
    assert not Path(cache.folder).exists()


def entry_of(cache):
    [entry] = Path(cache.folder).rglob("*.json")
    return entry


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-5],
        lambda data: b"\xff\x00" * 50,
        lambda data: data.replace(b'"loops":2', b'"loops":3'),
        lambda data: b"[]",
        lambda data: caches._hash(b"[]") + b"\n[]",
        lambda data: caches._hash(b'{"key": 1}') + b'\n{"key": 1}',
    ],
)
def test_a_damaged_entry_is_no_entry_and_is_written_again(cache, damage):
    cache.put("a.py", b"x", OUTCOMES[1])
    entry = entry_of(cache)
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.get("a.py", b"x") is None
    cache.put("a.py", b"x", OUTCOMES[1])
    assert cache.get("a.py", b"x") == OUTCOMES[1]


def test_an_entry_of_another_shape_is_no_entry(cache):
    cache.put("a.py", b"x", OUTCOMES[1])
    entry = entry_of(cache)
    content = json.loads(entry.read_bytes().partition(b"\n")[2])
    for key in ("findings", "diagnostic", "path"):
        broken = content | {"outcome": {k: v for k, v in content["outcome"].items() if k != key}}
        body = json.dumps(broken).encode()
        entry.write_bytes(caches._hash(body) + b"\n" + body)
        assert cache.get("a.py", b"x") is None


def test_the_folder_keeps_out_of_git_and_backups(cache):
    cache.put("a.py", b"x", OUTCOMES[0])
    folder = Path(cache.folder)
    assert (folder / ".gitignore").read_text() == "*\n"
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172")
    assert not list(folder.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written_is_no_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").write_text("a file")
    cache = Cache(tmp_path / "c", settings())
    cache.put("a.py", b"x", OUTCOMES[0])
    assert cache.get("a.py", b"x") is None
    assert list(tmp_path.iterdir()) == [tmp_path / "c"]


def test_a_failed_write_leaves_nothing_beside(cache, monkeypatch):
    def full(*_):
        raise OSError(28, "full")

    cache.put("a.py", b"x", OUTCOMES[0])
    monkeypatch.setattr(os, "replace", full)
    cache.put("b.py", b"x", OUTCOMES[0])
    assert not list(Path(cache.folder).rglob("*.tmp"))


def test_the_version_follows_the_sources_of_the_judgement():
    assert caches._version() == caches._version.__wrapped__()
    assert caches._version().startswith("py3")
    package = Path(caches.__file__).parent.parent
    sources = [file for room in caches._OUR_ROOMS for file in (package / room).rglob("*.py")]
    told = list(caches._sources(str(package), caches._OUR_ROOMS))
    assert sorted(told) == sorted(file.relative_to(package).as_posix() for file in sources)
    assert len(told) > 100


def test_a_link_that_waits_for_what_is_written_is_not_followed(tmp_path):
    """Its name can be guessed; what it leads to is not ours."""
    target, entry = tmp_path / "target", tmp_path / "entry"
    target.write_text("mine")
    waiting = tmp_path / f"entry.{os.getpid()}.tmp"
    waiting.symlink_to(target)
    with pytest.raises(FileExistsError):
        caches.write_atomically(str(entry), b"data")
    assert target.read_text() == "mine"
    caches.write_atomically(str(entry), b"data")  # the link is gone
    assert entry.read_bytes() == b"data"
