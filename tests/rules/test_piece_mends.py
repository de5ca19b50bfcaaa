from functools import partial

from instep.trace import Backward, Drawn, Step, Zero
from tests.rules.mends import candidates

step = partial(Step, "optimizer")
backward = partial(Backward, ("optimizer",))
zero = partial(Zero, ("optimizer",))


def lines(*code):
    return "".join(f"{line}\n" for line in code)


def first(rule, text, *events):
    return candidates(rule, text, *events)[0]


PIECES = lines(
    "for image in loader:",
    "    for patch in {iterated}:",
    "        opt.zero_grad()",
    "        loss = f(model(patch))",
    "        loss.backward()",
    "",
    "        clip_grad_norm_(ps, 1.0)",
    "        opt.step()",
    "    log()",
)
PIECE_EVENTS = [
    (step, "opt.step()"),
    (backward, "loss.backward()"),
    (zero, "opt.zero_grad()"),
    (partial(Drawn, "patches", of="loader"), "patch"),
]


def test_one_update_for_all_pieces():
    assert first("step_per_patch", PIECES.format(iterated="patches"), *PIECE_EVENTS) == lines(
        "for image in loader:",
        "    opt.zero_grad()",
        "    for patch in patches:",
        "        loss = f(model(patch))",
        "        (loss / len(patches)).backward()",
        "    clip_grad_norm_(ps, 1.0)",
        "    opt.step()",
        "    log()",
    )


def test_pieces_get_a_name_where_they_need_one():
    found = first("step_per_patch", PIECES.format(iterated="image.split(8)"), *PIECE_EVENTS)
    assert found.splitlines()[1:4] == [
        "    patches = image.split(8)",
        "    opt.zero_grad()",
        "    for patch in patches:",
    ]
    unknown = first("step_per_patch", PIECES.format(iterated="cut(image)"), *PIECE_EVENTS)
    assert "    patches = list(cut(image))" in unknown
    assert unknown.endswith("    opt.step()\n    log()\n")
    taken = PIECES.format(iterated="cut(image, patches, pieces, parts)")
    assert "/ len" not in first("step_per_patch", taken, *PIECE_EVENTS)
