import json

from instep.check.quotes import Quotes
from instep.trace import Place


def test_lines_of_files_cells_and_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_bytes("\ufeffx\r\né\r\n".encode())
    (tmp_path / "b.py").write_bytes(b"\xff\n")
    cells = [{"cell_type": "markdown", "source": "m"}, {"cell_type": "code", "source": "%a\nb"}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "bad.ipynb").write_text("{")
    quotes = Quotes({"-": b"from stdin"})
    assert quotes("a.py", None) == ["x", "é", ""]
    assert quotes("b.py", None) == ["\ufffd", ""]
    assert quotes("n.ipynb", 1) == ["%a", "b"]
    assert quotes("n.ipynb", None) is None
    assert quotes("bad.ipynb", 1) is None
    assert quotes("-", None) == ["from stdin"]
    assert quotes("none.py", None) is None
    assert quotes.line(Place("a.py", 2)) == "é"
    assert quotes.line(Place("a.py", 9)) == quotes.line(Place("none.py", 1)) == ""
    (tmp_path / "a.py").unlink()
    assert quotes("a.py", None) == ["x", "é", ""]
