import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.json_spans import Span, items, read

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
sources = st.text(max_size=6) | st.lists(st.text(max_size=6), max_size=4)


@given(
    st.lists(st.fixed_dictionaries({"source": sources, "outputs": values}), max_size=4),
    values,
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
)
def test_it_reads_what_json_reads(cells, metadata, indent, escapes):
    content = {"metadata": metadata, "cells": cells, "nbformat": 4}
    whole = json.dumps(content, indent=indent, ensure_ascii=escapes)
    notebook = read("\ufeff" + whole)
    assert notebook["metadata"] == metadata
    for cell, expected in zip(notebook["cells"], cells, strict=True):
        assert cell["outputs"] == expected["outputs"]
        span = cell["source"]
        assert span.value == expected["source"]
        assert json.loads(("\ufeff" + whole)[span.start : span.end]) == span.value


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5), st.sampled_from([None, 2]))
def test_items_put_together_again_are_the_list(strings, indent):
    whole = "  " + json.dumps(strings, indent=indent)
    found, layout = items(whole, Span(strings, 2, len(whole)))
    assert [value for value, _ in found] == strings
    written = layout.between.join(raw for _, raw in found)
    assert f"[{layout.opening}{written}{layout.closing}]" == whole[2:]


@pytest.mark.parametrize(
    "whole",
    [
        "",
        "x",
        "[]",
        "{",
        '{"cells"',
        '{"cells":',
        '{"cells": [',
        '{"cells": [{]}',
        '{"a": 1,}',
        "{} {}",
        '{"cells": null}',
        '{"cells": [{"source": "a"} {}]}',
        "{1: 2}",
    ],
)
def test_what_is_no_notebook_raises_one_error(whole):
    with pytest.raises(json.JSONDecodeError):
        read(whole)
