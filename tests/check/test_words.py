import pytest

from instep.check.judge import judge
from instep.check.sources import units_from_bytes
from instep.check.words import COMMENTS, WORDS, holds, holds_bytes, wanted

TEXTS = ["loss.backward()", "é = zero_grad", "import torch.cuda.amp", "x = 1  # instep: ignore", ""]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("words", [WORDS, COMMENTS])
def test_bytes_hold_what_the_text_holds(text, words):
    for encoding in ("utf-8", "latin-1"):
        assert holds_bytes(text.encode(encoding), words) == holds(text, words)


def test_what_is_not_wanted_is_not_judged():
    [unit] = units_from_bytes(b"for x in y:\n    optimizer.step()\n", "a.py")
    assert not wanted(unit.text)
    assert judge(unit).loops == 0
