import subprocess
import sys

import pytest

from instep.reports import FORMATS, Options, render, renderer
from tests.reports.kit import LOOP, finding, source_of


def test_the_formats():
    assert list(FORMATS) == ["text", "json", "sarif", "github"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_called_alike(name):
    source = source_of({"train.py": LOOP})
    shown = render(name, iter([finding()]), source)
    assert "INS101" in shown
    assert shown.endswith("\n")
    assert shown == renderer(name)([finding()], source, Options())


def test_the_order_of_findings_does_not_matter():
    source = source_of({"train.py": LOOP})
    found = [finding(), finding(code="INS102"), finding(message="other.")]
    for name in FORMATS:
        assert render(name, found, source) == render(name, found[::-1], source)


def test_an_unknown_format():
    with pytest.raises(KeyError):
        renderer("xml")


def test_only_what_is_used_is_imported():
    code = (
        "import sys, instep.reports\n"
        "assert not {'json', 'urllib.parse', 'torch'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
