import re

from instep.reports.charts import charts
from instep.reports.record import Owner, Record
from tests.reports.jobs import evil, long, small


def test_every_line_has_its_chart():
    html, data = charts(small())
    titles = re.findall(r"<figcaption><b>(.*?)</b>", html)
    assert titles == [
        "Loss", "Gradient norm", "Update-to-weight ratio", "Learning rate", "Skipped steps",
    ]  # fmt: skip
    assert [chart["title"] for chart in data] == titles
    norm = data[1]
    assert [line["label"] for line in norm["lines"]] == ["before clipping", "as used"]
    assert [point[3] for point in norm["lines"][0]["points"]] == ["7.5", "nan"]
    assert norm["lines"][0]["points"][1][2] is None


def test_what_is_not_finite_is_marked_and_does_not_join_lines():
    html, _ = charts(small())
    assert 'class="broken" d="M1000 0V1000"' in html
    assert "not finite" in html
    assert not re.search(r"nan|inf", "".join(re.findall(r' d="(.*?)"', html)))


def test_points_that_stand_alone_are_dots():
    html, _ = charts(small())
    dots = re.findall(r'<path class="o0 dot" d="(.*?)"', html)
    assert len(dots) == 3  # both norms, whose second value is not finite, and the ratio
    assert all(re.fullmatch(r"M\d+ \d+h0", dot) for dot in dots)


def test_updates_are_whole():
    html, _ = charts(small())
    assert re.search(r'class="foot" aria-hidden="true"><i style="left:0.00%">1</i>', html)
    assert len(re.findall(r'<i style="left', html)) == 2 * 5


def test_points_lie_in_the_box():
    html, _ = charts(small())
    for path in re.findall(r' d="(.*?)"', html):
        assert all(0 <= int(number) <= 1000 for number in re.findall(r"\d+", path))
        assert "-" not in path


def test_many_points_are_a_band_with_its_mean():
    html, data = charts(long())
    assert html.count('class="o0 after band"') == 2
    assert "running mean" in html
    assert len(html) < 60_000
    assert all(len(line["points"]) <= 640 for chart in data for line in chart["lines"])
    assert "band" not in charts(small())[0]


def test_several_optimizers_are_told_apart():
    owners = tuple(Owner(f"o{number}", updates=2) for number in range(8))
    lines = {f"loss/{owner.name}": ((1, 0.1, 1.0), (2, 0.2, 0.5)) for owner in owners}
    html, data = charts(Record(title="", optimizers=owners, lines=lines))
    assert [line["label"] for line in data[0]["lines"]] == ["o0", "o1", "o2", "o3", "o4", "o5"]
    assert '<li class="o5 after">o5</li>' in html


def test_nothing_measured_draws_nothing():
    assert charts(Record(title="")) == ("", [])


def test_names_are_escaped():
    html, _ = charts(evil())
    assert "<script" not in html
    assert "<img" not in html
