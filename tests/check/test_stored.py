import json

from hypothesis import given
from hypothesis import strategies as st

from instep.check.outcome import Outcome, Unjudged
from instep.check.stored import outcome_of, packed
from instep.trace import Place
from tests.reports.kit import finding, plain, texts


@given(st.lists(texts, min_size=5, max_size=5), st.integers(), st.booleans())
def test_everything_survives_json(words, number, is_plain):
    place = Place(words[0], number, 1, function=words[1], snippet=words[2], cell=number)
    make = plain if is_plain else finding
    outcome = Outcome(
        words[0],
        findings=(make(message=words[3], place=place),),
        unjudged=(Unjudged(place, words[4]),),
        loops=number,
        silenced=(make(message=words[4], place=place),),
        elsewhere=(make(message=words[2], place=place),),
        followed=(words[1],),
    )
    assert outcome_of(json.loads(json.dumps(packed(outcome)))) == outcome
