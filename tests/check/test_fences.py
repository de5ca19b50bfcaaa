import pytest

from instep.check.fences import blocks
from instep.check.lines import cut


def found(text):
    lines = cut(text)
    return [
        "\n".join(
            line.text[len(prefix) :]
            for line, prefix in zip(lines[block.first : block.last], block.prefixes, strict=True)
        )
        for block in blocks(lines)
    ]


@pytest.mark.parametrize(
    "info",
    [
        "python",
        "py",
        "Python",
        "python3",
        " python ",
        "python title='a'",
        "python {3,5}",
        "{python}",
        "{.python .number}",
        "{python, echo=FALSE}",
        "python:train.py",
        "{code-cell} ipython3",
        "{code-block} python",
        "",
    ],
)
def test_python_blocks(info):
    assert found(f"```{info}\nx = 1\n```\n") == ["x = 1"]
    assert found(f"~~~~{info}\nx = 1\n~~~~\n") == ["x = 1"]


@pytest.mark.parametrize(
    "info",
    [
        "bash",
        "text",
        "pycon",
        "python-repl",
        "console",
        "json",
        "diff",
        "{code-block} bash",
        "jupyter",
        "pytb",
        "{note}",
    ],
)
def test_other_blocks(info):
    assert found(f"```{info}\nx = 1\n```\n") == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1. a\n\n   ```python\n   for x in y:\n\n       z\n   ```\n", "for x in y:\n\n    z"),
        ("- ```py\n  x = 1\n  ```\n", "x = 1"),
        ("> ```python\n> x = 1\n>\n> y = 2\n> ```\n", "x = 1\n\ny = 2"),
        ("> > ```python\n> > x = 1\n> > ```\n", "x = 1"),
        ("\t```python\n\tx = 1\n\t```", "x = 1"),
        ("```python\n    loss.backward()\n    step()\n```", "loss.backward()\nstep()"),
        ("`````python\n```\nx\n`````", "```\nx"),
        ("```python\nx = '''\n~~~\n'''\n```", "x = '''\n~~~\n'''"),
        ("```python\nx = 1", "x = 1"),
        (
            ".. code-block:: python\n   :linenos:\n\n   x = 1\n\n   y = 2\n\ntext",
            "\nx = 1\n\ny = 2",
        ),
        ("  .. code:: python\n\n     x = 1\n  text", "\nx = 1"),
    ],
)
def test_prefixes_are_taken_off(text, code):
    assert found(text) == [code]


@pytest.mark.parametrize(
    "text",
    [
        "````markdown\n```python\nx = 1\n```\n````\n",
        "inline ```python x``` here",
        "```python x = 1```\ny",
        "```python\n```",
        "```python\n\n\n```",
        ".. code-block:: bash\n\n   ls\n",
        ".. code-block:: python\n\ntext",
    ],
)
def test_no_block(text):
    assert found(text) == []


def test_a_closed_block_does_not_swallow_the_next():
    text = "```\na\n```\n\n```bash\nb\n```\n\n~~~python\nc\n~~~\n"
    assert found(text) == ["a", "c"]
