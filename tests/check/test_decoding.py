import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.check.decoding import Decoded, decode
from instep.check.parsing import Fault


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"", "utf-8"),
        ("x = 'é'".encode(), "utf-8"),
        (codecs.BOM_UTF8 + b"x = 1", "utf-8"),
        (codecs.BOM_UTF8 + b"# coding: utf-8\n", "utf-8"),
        (b"# -*- coding: utf-8-unix -*-\n", "utf-8"),
        (b"# coding=UTF_8\n", "utf-8"),
        (b"# coding: utf-8-sig\nx", "utf-8"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\nx = '\xe9'", "iso-8859-1"),
        (b"#!/usr/bin/python\r# coding: cp1252\rx = '\x80'", "cp1252"),
        (b"\n# coding: koi8-r\n'\xc1'", "koi8-r"),
        ("# coding: shift_jis\n'日本'".encode("shift_jis"), "shift_jis"),
        (b"# coding: iso-8859-15\n'\xa4'", "iso-8859-15"),
    ],
)
def test_it_decodes_what_python_does_and_can_go_back(data, encoding):
    decoded = decode(data)
    assert isinstance(decoded, Decoded)
    assert decoded.encoding == encoding
    assert decoded.whole.encode(decoded.encoding) == data


def test_an_encoding_is_declared_in_the_first_two_lines_only():
    assert decode(b"x = 1\n# coding: latin-1\n").encoding == "utf-8"
    assert decode(b"\n\n# coding: latin-1\n").encoding == "utf-8"
    assert decode(b"# one\rx = 1\r# coding: latin-1\r").encoding == "utf-8"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"x = 1\ny = '\xe9'\n", 2),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", 1),
        (b"# coding: klingon\n", 1),
        (b"# coding: rot13\n", 1),
        (b"# coding: hex\n", 1),
        (b"# coding: utf-16\nx = 1;\n", 1),
        (b"# coding: ascii\n'\xe9'", 2),
        ("x = 1\n".encode("utf-16"), 1),
    ],
)
def test_undecodable(data, line):
    fault = decode(data)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.line) == ("undecodable", line)


@given(st.binary(max_size=60), st.sampled_from([b"", codecs.BOM_UTF8, b"# coding: "]))
def test_no_bytes_raise(data, before):
    decoded = decode(before + data)
    assert isinstance(decoded, Decoded | Fault)


@pytest.mark.parametrize(
    "name", ["idna", "punycode", "unicode_escape", "utf-7", "zip", "undefined"]
)
def test_codecs_that_fail_in_their_own_ways(name):
    assert isinstance(decode(f"# coding: {name}\n".encode() + b"\xff\\ud800..\n"), Decoded | Fault)
