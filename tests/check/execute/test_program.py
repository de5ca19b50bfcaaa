import ast

from instep.check.execute import program
from instep.check.execute.program import Project, Scope
from tests.check.execute.run import module_of, unit_of


def adopt(folder, source=""):
    project = Project()
    return project, project.adopt(unit_of(source), str(folder / "train.py"))


def test_the_same_node_has_the_same_place():
    module = module_of("def train():\n    loss.backward()")
    node = module.tree.body[0].body[0]
    place = module.place(node)
    assert module.place(node) is place
    assert (place.line, place.column, place.function) == (2, 4, "train")
    assert module.nodes[place] is node


def test_what_is_at_the_top_is_in_the_module():
    module = module_of("x = 1")
    assert module.place(module.tree.body[0]).function == "<module>"


def test_an_expression_is_spelled_in_one_way():
    module = module_of("f( a ,b )")
    call = module.tree.body[0].value
    assert module.spelled(call) == "f(a, b)"
    assert module.spelled(call) is module.spelled(call)
    assert module.spelled(ast.Name("x")) == "x"


def test_names_with_dots_are_spelled_as_anything_else_is():
    for text in ("a.b.c", "a . b", "f().b.c", "a[0].b", "(1).real", "'x'.y", "(a + b).c"):
        node = ast.parse(text, mode="eval").body
        assert module_of("").spelled(node) == ast.unparse(node)


def test_a_node_is_read_once_by_each_that_asks():
    module, asked = module_of("x"), []

    def first(node, _module):
        asked.append(node)

    node = module.tree.body[0]
    assert module.read(first, node) is module.read(first, node) is None
    assert module.read(lambda node, _: node, node) is node
    assert asked == [node]


def test_the_text_of_a_statement():
    module = module_of("x = 1\nif x:\n    y = 2\n")
    assert module.text(module.tree.body[1]) == "if x:\n    y = 2"


def test_the_top_of_a_scope():
    top = Scope(module_of(""))
    assert Scope(top.module, Scope(top.module, top)).top() is top


def test_imports_are_found_beside_the_file_and_at_the_root(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "pkg").mkdir()
    for name in ("beside.py", "src/deep.py", "pkg/__init__.py", "pkg/inner.py"):
        (tmp_path / name).write_text("loss = 1")
    project, module = adopt(tmp_path)
    for name in ("beside", "deep", "pkg", "pkg.inner"):
        assert project.find(module, name, 0) is not None, name
    assert project.find(module, "inner", 0) is None
    assert project.find(module, "pkg.inner", 1) is project.find(module, "pkg.inner", 0)


def test_what_is_looked_for_is_remembered(tmp_path):
    project, module = adopt(tmp_path)
    assert project.find(module, "missing", 1) is None
    assert str(tmp_path / "missing.py") in project.asked
    assert project.find(module, "torch.nn", 0) is None
    assert not any("torch" in file for file in project.asked)


def test_a_file_without_anything_to_do_with_training_is_not_followed(tmp_path):
    (tmp_path / "text.py").write_text("def hello(): ...")
    project, module = adopt(tmp_path)
    assert project.find(module, "text", 1) is None


def test_the_file_itself_is_the_one_being_judged(tmp_path):
    (tmp_path / "train.py").write_text("loss = 1")
    project, module = adopt(tmp_path, "loss = 2")
    assert project.find(module, "train", 1) is module


def test_the_modules_that_an_import_means(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("loss = 1")
    (tmp_path / "pkg" / "inner.py").write_text("loss = 1")
    project, module = adopt(tmp_path)
    node = ast.parse("from .pkg import inner, missing").body[0]
    assert len(project.meant(module, node)) == 2


def test_text_without_a_file_imports_nothing():
    assert Project().find(module_of(""), "utils", 0) is None


def test_what_is_read_off_a_node_is_read_once():
    module = module_of("x = 1\ny = 2\n")
    asked = []

    def line(node, of):
        asked.append((node, of))
        return node.lineno

    first, second = module.tree.body
    assert [module.read(line, node) for node in (first, second, first)] == [1, 2, 1]
    assert asked == [(first, module), (second, module)]


def test_unknown_values_of_one_place_have_one_key_and_those_of_two_modules_have_two():
    one, other = module_of("f(x)\n"), module_of("f(x)\n")
    call = one.tree.body[0].value
    assert one.key(call) == one.key(call) != one.key(call.args[0])
    assert one.key(call) != other.key(call)


def test_a_file_that_touches_gradients_is_followed(tmp_path):
    (tmp_path / "attack.py").write_text("def keep(w):\n    return w.grad.clone()\n")
    (tmp_path / "tidy.py").write_text("def gradual(w):\n    return w.gradual\n")
    project, module = adopt(tmp_path)
    assert project.find(module, "attack", 0) is not None
    assert project.find(module, "tidy", 0) is None


def test_so_much_is_followed_and_no_more(tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / f"part{number}.py").write_text("loss = 0\n" + "#" * 90)
    monkeypatch.setattr(program, "_MOST_FOLLOWED", 200)
    project, module = adopt(tmp_path)
    found = [project.find(module, f"part{number}", 0) for number in range(4)]
    assert [one is not None for one in found] == [True, True, True, False]
    assert project.find(module, "part1", 0) is found[1]  # what was read already costs nothing


def test_what_others_have_followed_does_not_count(tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / f"part{number}.py").write_text("loss = 0\n" + "#" * 90)
    monkeypatch.setattr(program, "_MOST_FOLLOWED", 200)
    project, module = adopt(tmp_path)
    for number in range(4):
        project.find(module, f"part{number}", 0)
    module = project.adopt(unit_of(""), str(tmp_path / "other.py"))
    found = [project.find(module, f"part{number}", 0) for number in (3, 2, 1, 0)]
    assert [one is not None for one in found] == [True, True, True, False]
