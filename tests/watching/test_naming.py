import pytest

from instep.errors import WatchError
from instep.watching.naming import format_of


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.html", None),
        ("a.HTM", None),
        ("a.json", "json"),
        ("a.sarif", "sarif"),
        ("a.txt", "text"),
    ],
)
def test_names_that_tell(path, name):
    assert format_of(path) == name


@pytest.mark.parametrize("path", ["a.pdf", "a.xml", "a", ".html", "html"])
def test_names_that_do_not(path):
    with pytest.raises(WatchError, match="does not say what to write"):
        format_of(path)
