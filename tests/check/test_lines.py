import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.lines import cut, plain, realign, restore

ENDINGS = ["\n", "\r\n", "\r"]
text_lines = st.text(alphabet="ab \x0c\x0b\x1c\x85\u2028é", max_size=4)
files = st.lists(st.tuples(text_lines, st.sampled_from(ENDINGS)), max_size=8)


def joined(pairs, last=""):
    # A lone CR before a bare LF would read as one ending; a letter keeps them apart.
    return "".join(f"{text}x{ending}" for text, ending in pairs) + last


@given(files, text_lines)
def test_cutting_loses_nothing_and_agrees_with_plain(pairs, last):
    whole = joined(pairs, last)
    lines = cut(whole)
    assert "".join(line.text + line.ending for line in lines) == whole
    assert "\n".join(line.text for line in lines) == plain(whole)
    for line in lines:
        assert whole.startswith(line.text, line.start)


@given(files, text_lines)
def test_restoring_an_unchanged_text_gives_the_file(pairs, last):
    whole = joined(pairs, last)
    assert restore(whole, plain(whole)) == whole


@given(st.sampled_from(ENDINGS), st.lists(text_lines, min_size=2), st.lists(text_lines))
def test_one_kind_of_ending_is_kept_for_any_edit(ending, old, new):
    assert restore(ending.join(old), "\n".join(new)) == ending.join(new)


@given(st.lists(st.sampled_from(ENDINGS), min_size=3, max_size=9), st.data())
def test_mixed_endings_stay_with_their_lines(endings, data):
    pairs = [(f"line {at}", ending) for at, ending in enumerate(endings)]
    dropped = data.draw(st.sets(st.integers(0, len(pairs) - 1)))
    kept = [pair for at, pair in enumerate(pairs) if at not in dropped]
    whole = "".join(text + ending for text, ending in pairs)
    new = "".join(f"{text}\n" for text, _ in kept)
    assert restore(whole, new) == "".join(text + ending for text, ending in kept)


def test_a_new_line_gets_the_usual_ending():
    assert restore("a\r\nb\r\nc\n", "a\nnew\nb\nc\n") == "a\r\nnew\r\nb\r\nc\n"


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_realigned_lines_are_equal_and_in_order(old, new):
    kept = realign(old, new)
    assert len(kept) == len(new)
    pairs = [(at, line) for at, line in zip(kept, new, strict=True) if at is not None]
    assert all(old[at] == line for at, line in pairs)
    assert [at for at, _ in pairs] == sorted({at for at, _ in pairs})


def test_huge_rewrites_do_not_hang():
    old = [f"a{n}" for n in range(60_000)]
    assert realign(old, [f"b{n}" for n in range(60_000)]) == [None] * 60_000


@pytest.mark.parametrize("whole", ["", "\n", "a", "a\r", "\r\n\r\n"])
def test_small_files(whole):
    assert restore(whole, plain(whole)) == whole
