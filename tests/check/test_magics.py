import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.magics import neutralise, revive

MAGICS = [
    "%matplotlib inline",
    "%load_ext tensorboard\nx = 1",
    "!pip install torch",
    "!echo \"it's",
    "!!ls",
    "pip install torch -q",
    "?torch.nn",
    "torch.nn?",
    "torch.nn??",
    "models[0].fc?",
    "%timeit?",
    "if gpu:\n    !nvidia-smi\nelse:\n    pass",
    "if gpu:\n    %time f()\nx = 2",
    "files = !ls *.py",
    "a, b = %timeit -o f()",
    "x.y[0] = !ls",
    "!pip install a \\\n    b \\\n  c\nx = 1",
    "for x in y:\n    !pip install a \\\nb\n    z = 1",
    "files = !ls \\\n  -l\nx = 1",
    "%%time\nfor x in y:\n    loss.backward()",
    "\n%%capture out\nx = 1",
    "%%bash\nfor x in *; do echo $x; done",
    "%%html\n<b>it's</b>\n\n",
    "x = '''\n%not a magic\n'''\n%magic",
    "x = (1\n     % 2)\n!ls",
    "x = 1 \\\n  % 2\n%who",
    "s = \"a'''b\"\n%who",
    "s = 'it''s'  # '''\n%who",
    "s = '\\''\n%who\nt = '''a\\'''\n% b'''",
]


@pytest.mark.parametrize("cell", MAGICS)
def test_magics_are_hidden_and_come_back(cell):
    hidden = neutralise(cell)
    ast.parse(hidden)
    assert hidden.count("\n") == cell.count("\n")
    assert revive(hidden) == cell


@pytest.mark.parametrize("cell", MAGICS)
def test_indented_magics_come_back_indented(cell):
    if "\\\n" in cell or "%%" in cell:
        return
    hidden = neutralise(cell)
    assert revive("\n".join("  " + line for line in hidden.split("\n"))) == "\n".join(
        "  " + line for line in cell.split("\n")
    )


@pytest.mark.parametrize(
    "cell",
    [
        "x = 5 % 3",
        "x = ('%d'\n     % 3)",
        "x = [\n!= 2]",
        "a != b",
        "a %= 2",
        "'''\n%matplotlib\n!ls\nwhat?\n'''",
        "d['lr=%f' % lr] = 1",
        "print('a=%d' % x)",
        "x = 1  # why?",
        "# really?",
        "f'''{x}\n%time\n'''",
        "x = 'a?'",
        "x = f(a,\n      b=!c\n)",
    ],
)
def test_what_is_no_magic_is_left_alone(cell):
    assert neutralise(cell) == cell


def test_python_under_a_timing_magic_keeps_its_positions():
    hidden = neutralise("%%time\nloss.backward()").split("\n")
    assert hidden[1] == "loss.backward()"


def test_code_around_an_assignment_keeps_its_columns():
    assert neutralise("a.b = !ls").startswith("a.b = None")


lines = st.sampled_from(
    ["x = 1", "%who", "    !ls", "y?", "'''", "(", ")", "", "z = !ls \\", "%%bash", "#?"]
)


@given(st.lists(lines, max_size=8).map("\n".join))
def test_every_cell_comes_back(cell):
    hidden = neutralise(cell)
    assert revive(hidden) == cell
    assert hidden.count("\n") == cell.count("\n")
