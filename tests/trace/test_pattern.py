import re

import pytest

from instep.trace.pattern import pattern


def test_it_is_compiled_when_it_is_used(monkeypatch):
    compiled = []
    compile_ = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given) or compile_(*given))
    late = pattern("a(b*)", re.IGNORECASE)
    assert not compiled
    assert late.search("xABB")[1] == "BB"
    assert late.search("xA")[1] == ""
    assert compiled == [("a(b*)", re.IGNORECASE)]
    assert late.pattern == "a(b*)"
    assert late.groups == 1
    with pytest.raises(AttributeError, match="searched"):
        _ = late.searched
