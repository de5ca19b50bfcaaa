from benchmarks.check_speed import tree
from benchmarks.check_speed.tree import Tree, copied, counted, has_loop, loops_alone, mixed

LOOP = (
    "for x in loader:\n    optimizer.zero_grad()\n    model(x).backward()\n    optimizer.step()\n"
)
OTHER = "x = 1\n" * 30


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def package(tmp_path, monkeypatch, files):
    """A world with one package and no training script but its own and this repository's."""
    home = write(tmp_path / "site-packages" / "pack", files)
    monkeypatch.setattr(tree, "_home", lambda name: home if name == "pack" else None)
    monkeypatch.setattr(tree, "PACKAGES", ("pack",))
    monkeypatch.setattr(tree, "SCRIPTS", (("pack", "scripts"),))
    return home


def test_a_loop_needs_a_backward_and_a_use_of_it():
    assert has_loop(LOOP.encode())
    assert not has_loop(b"loss.backward()\n")
    assert not has_loop(b"optimizer.zero_grad()\noptimizer.step()\n")


def test_one_file_in_ten_has_a_loop(tmp_path, monkeypatch):
    files = {f"module_{number}.py": OTHER for number in range(60)} | {"scripts/train.py": LOOP}
    package(tmp_path, monkeypatch, files)
    monkeypatch.setattr(tree, "LOOPS_IN_TREE", 5)
    made = mixed(tmp_path / "tree")
    assert (made.files, made.loop_files) == (50, 5)
    assert made == counted(tmp_path / "tree")


def test_the_tree_is_the_same_every_time(tmp_path, monkeypatch):
    files = {f"module_{number}.py": f"# {number}\n" * 25 for number in range(300)}
    package(tmp_path, monkeypatch, files)
    contents = []
    for name in ("one", "two"):
        mixed(tmp_path / name)
        found = sorted((tmp_path / name).rglob("*.py"))
        contents.append([(path.relative_to(tmp_path / name), path.read_bytes()) for path in found])
    assert contents[0] == contents[1]


def test_other_files_are_of_the_right_length_and_without_loops(tmp_path, monkeypatch):
    long = "x = 1\n" * tree.OTHER_LINES.stop
    files = {"short.py": "x = 1\n", "long.py": long, "loop.py": OTHER + LOOP, "right.py": OTHER}
    package(tmp_path, monkeypatch, files)
    assert [path.name for path in tree.other_files(10)] == ["right.py"]


def test_the_longest_loops_come_first_and_ours_are_among_them(tmp_path, monkeypatch):
    home = package(tmp_path, monkeypatch, {"scripts/train.py": "x = 1\n" * 900 + LOOP})
    first, *rest = tree.loop_files()
    assert first == home / "scripts" / "train.py"
    inside = {path.relative_to(tree.ROOT).parts[0] for path in rest}
    assert inside == {"examples", "tests"}


def test_every_loop_is_in_the_second_tree(tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, {"scripts/train.py": LOOP})
    made = loops_alone(tmp_path / "tree")
    assert made.files == made.loop_files == len(tree.loop_files())
    assert made.lines == made.loop_lines > 1000


def test_a_project_keeps_its_places_but_not_what_a_checker_leaves_out(tmp_path):
    files = {"a/train.py": LOOP, "a/data.py": OTHER, "build/x.py": LOOP, ".venv/y.py": LOOP}
    source = write(tmp_path / "project", {**files, "notes.md": LOOP})
    made = copied(source, tmp_path / "copy")
    assert made == Tree(tmp_path / "copy", 2, 1, 34, 4)
    assert (tmp_path / "copy" / "a" / "train.py").is_file()
    assert copied(source, tmp_path / "loops", only_loops=True).files == 1


def test_the_tree_says_what_it_is():
    assert Tree(tree.ROOT, 1200, 10, 50_000, 2000).text == (
        "1,200 files, 50,000 lines; 10 files and 2,000 lines of them with a training loop"
    )
