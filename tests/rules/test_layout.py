from instep.rules.layout import Layout, Spot

TEXT = '''\
x = """one
  two"""  # é
y = f(  # ü
    1,
)
if x: \\
    z = 1
# last'''


def test_what_tokens_tell():
    marks = Layout(TEXT).marks
    assert marks.quoted == {2}
    assert marks.continued == {2, 4, 5, 7}
    assert marks.comments == {2: 10, 3: 8, 8: 0}


def test_formatted_strings_are_strings_too():
    marks = Layout('x = f"""{a}\n  b{c}\nd"""\n').marks
    assert marks.quoted == {2, 3}


def test_columns_count_bytes():
    layout = Layout("é = 'ü'  # ß\n")
    assert layout.comment(1) == len("é = 'ü'  ".encode())
    assert layout.between(Spot(1, 5), Spot(1, 9)) == "'ü'"


def test_only_newlines_end_lines():
    layout = Layout("a = 1\x0c\nb = '\x85'\nc = 3\n")
    assert [layout.line(n) for n in (1, 2, 3, 4, 5)] == ["a = 1\x0c", "b = '\x85'", "c = 3", "", ""]


def test_spans_over_lines():
    assert Layout(TEXT).between(Spot(3, 4), Spot(5, 1)) == "f(  # ü\n    1,\n)"


def test_lines_and_comments():
    layout = Layout("if x:\n\t # a\n\ty()  # b\n\n")
    assert layout.is_comment(2)
    assert not layout.is_comment(3)
    assert layout.indent(2) == "\t "
    assert layout.is_blank(4)
    assert layout.is_blank(99)


def test_what_cannot_be_cut_into_tokens_has_no_marks():
    assert Layout("x = (\n# c\n").marks.comments == {}


def test_the_end_of_a_text_without_a_line_end():
    layout = Layout("a\nbc")
    assert layout.after(1) == Spot(2, 0)
    assert layout.after(2) == layout.end == Spot(2, 2)
    assert layout.insertion(layout.end, "d") == "\nd"
    assert layout.insertion(Spot(2, 0), "d") == "d\n"
    ended = Layout("a\n")
    assert ended.insertion(ended.after(1), "d") == "d\n"
