"""The structural rules of SARIF 2.1.0 that a reader of a log depends on, checked by hand."""

from __future__ import annotations

import re

URI = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})*")
LEVELS = {"none", "note", "warning", "error"}


def check(log):
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    assert set(log) == {"$schema", "version", "runs"}
    (run,) = log["runs"]
    assert set(run) == {"tool", "columnKind", "results"}
    assert run["columnKind"] == "utf16CodeUnits"
    driver = run["tool"]["driver"]
    assert driver["name"] == "instep"
    rules = driver["rules"]
    ids = [rule["id"] for rule in rules]
    assert len(ids) == len(set(ids)), "rules are unique"
    for rule in rules:
        check_rule(rule)
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        check_result(result)


def check_rule(rule):
    assert set(rule) <= {"id", "name", "shortDescription", "help", "defaultConfiguration"}
    if "shortDescription" in rule:
        check_message(rule["shortDescription"])
    if "defaultConfiguration" in rule:
        assert rule["defaultConfiguration"]["level"] in LEVELS
    if "help" in rule:
        assert isinstance(rule["help"]["text"], str), "markdown never stands without text"


def check_result(result):
    allowed = {"ruleId", "ruleIndex", "level", "message", "locations", "relatedLocations", "fixes"}
    assert set(result) <= allowed
    assert result["level"] in LEVELS
    check_message(result["message"])
    assert len(result["locations"]) == 1
    check_location(result["locations"][0])
    related = result.get("relatedLocations", [])
    ids = [location["id"] for location in related]
    assert len(ids) == len(set(ids))
    for location in related:
        check_message(location["message"])
        check_location(location)
    for fix in result.get("fixes", []):
        check_message(fix["description"])
        assert fix["artifactChanges"], "a fix changes something"
        for change in fix["artifactChanges"]:
            check_artifact(change["artifactLocation"])
            assert change["replacements"], "a change replaces something"
            for replacement in change["replacements"]:
                check_region(replacement["deletedRegion"])
                assert {"startColumn", "endColumn"} <= set(replacement["deletedRegion"])
                assert set(replacement["insertedContent"]) == {"text"}


def check_message(message):
    text = message["text"]
    assert isinstance(text, str)
    assert not re.search(r"[{}]", text.replace("{{", "").replace("}}", "")), "braces are doubled"
    assert not re.search(r"(?<!\\)\[[^\[\]]*\]\(", text), "no link by accident"


def check_location(location):
    assert set(location) <= {"id", "message", "physicalLocation", "logicalLocations"}
    physical = location["physicalLocation"]
    check_artifact(physical["artifactLocation"])
    check_region(physical["region"])
    for logical in location.get("logicalLocations", []):
        assert logical["name"]


def check_artifact(artifact):
    assert set(artifact) == {"uri"}
    assert URI.fullmatch(artifact["uri"]), artifact["uri"]
    scheme, colon, _ = artifact["uri"].partition("/")[0].partition(":")
    assert not colon or scheme == "file", "a relative path is not taken for a scheme"


def check_region(region):
    assert set(region) <= {"startLine", "startColumn", "endLine", "endColumn"}
    assert all(type(number) is int and number >= 1 for number in region.values())
    end_line = region.get("endLine", region["startLine"])
    assert end_line >= region["startLine"]
    if "endColumn" in region and end_line == region["startLine"]:
        assert region["endColumn"] >= region["startColumn"]
