from instep.check.outcome import as_finding
from instep.check.problems import diagnose
from instep.rules import Severity
from instep.trace import Place


def test_a_diagnostic_for_programs():
    finding = as_finding(diagnose("python-2", Place("a.py", 3), "it is written in Python 2."))
    assert (finding.code, finding.name, finding.severity) == (
        "INS000",
        "not-checked",
        Severity.WARNING,
    )
    assert finding.place == Place("a.py", 3)
    assert finding.message == (
        "this file was not checked: it is written in Python 2. Port the file, or exclude it."
    )
