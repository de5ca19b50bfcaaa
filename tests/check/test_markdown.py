import ast

from hypothesis import given
from hypothesis import strategies as st

from instep.check.markdown import markdown_units
from instep.trace import Place

ARTICLE = """# Training

Use this:

1. The loop

   ```python
   for x, y in loader:
       é = loss(x); é.backward()
       # ...

       ...
   ```

Not this (pseudo-code):

```python
for each batch do:
    step
```

```pycon
>>> x = 1
```

```python
>>> x = 1
1
```

```bash
pip install torch
```

> ~~~py
> !pip install torch
> optimizer.step()
> ~~~
"""


def test_each_block_is_a_unit_and_places_are_in_the_file():
    first, second = markdown_units(ARTICLE, "a.md")
    assert first.kind == "markdown"
    assert (
        first.text == "for x, y in loader:\n    é = loss(x); é.backward()\n    # ...\n\n    ...\n"
    )
    lines = ARTICLE.split("\n")
    for unit in (first, second):
        for node in ast.walk(unit.tree):
            if isinstance(node, ast.Name):
                place = unit.locator.place(
                    node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
                )
                written = lines[place.line - 1].encode()[place.column : place.end_column]
                assert written.decode() == node.id
                assert unit.source_line(place) == lines[place.line - 1]
                assert unit.locator.text_line(place) == node.lineno
    assert second.locator.text_line(Place("a.md", 1)) is None


def test_write_back_touches_the_block_only():
    first, second = markdown_units(ARTICLE, "a.md")
    edited = second.text.replace("optimizer.step()", "if ready:\n\n    optimizer.step()")
    assert second.write_back(edited) == ARTICLE.replace(
        "> optimizer.step()", "> if ready:\n>\n>     optimizer.step()"
    )
    assert first.write_back(first.text.replace("    ...\n", "")) == ARTICLE.replace(
        "       ...\n", "", 1
    )


def test_wanted_is_asked_block_by_block():
    units = markdown_units(ARTICLE, "a.md", lambda text: "step()" in text)
    assert [unit.text.split("\n")[1] for unit in units] == ["optimizer.step()"]
    assert markdown_units(ARTICLE, "a.md", lambda text: False) == []


def test_a_file_that_ends_in_its_block():
    for whole in ("```python\nx = 1", "```python\nx = 1\n", "```python\r\nx = 1\r\n"):
        [unit] = markdown_units(whole, "a.md")
        assert unit.text == "x = 1\n"
        assert unit.write_back(unit.text) == whole
        assert unit.write_back("x = 2\n") == whole.replace("1", "2")


block_lines = st.lists(
    st.sampled_from(["x = 1", "é = 'ü'", "", "%who", "# c", "if x:\n    y = 2", "z = !ls", "..."]),
    min_size=1,
    max_size=6,
).map(lambda lines: "\n".join(lines).split("\n"))


@given(
    block_lines,
    block_lines,
    st.sampled_from(["", "  ", "\t", "> ", "   > > "]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["```", "~~~~"]),
)
def test_an_edit_through_write_back_is_the_edit_of_the_file(old, new, prefix, ending, fence):
    old, new = ["first = 0", *old], ["first = 0", *new]

    def article(lines):
        body = [(prefix + line).rstrip() if not line else prefix + line for line in lines]
        fenced = [f"{prefix}{fence}python", *body, prefix + fence]
        return ending.join(["Été", "", *fenced, "", "```python", "other = 1", "```", "end"])

    whole = article(old)
    unit = markdown_units(whole, "a.md")[0]
    assert unit.write_back(unit.text) == whole
    # New text is plain Python; old magics come back.
    new = [line for line in new if "%" not in line and "!" not in line]
    assert unit.write_back("\n".join(new) + "\n") == article(new)
    for number, line in enumerate(old, start=1):
        place = unit.locator.place(number, 0)
        assert unit.source_line(place).encode()[place.column :].decode() == line
