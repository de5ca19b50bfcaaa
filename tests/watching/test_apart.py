from instep.watching.apart import Ending, Numbers, apart_after, apart_at_the_end, differs


def after(*numbers, past=None):
    made = (past or {}).get
    found = apart_after(dict(enumerate(numbers)), made)
    return None if found is None else (found.ranks, found.says)


def end(*endings):
    found = apart_at_the_end({rank: Ending(*each) for rank, each in enumerate(endings)})
    return None if found is None else (found.ranks, found.says)


A, B = (1.0, 0.5), (1.0, 0.6)


def test_most_ranks_are_right():
    same, other = Numbers(8, 8, 8, A), Numbers(8, 8, 8, B)
    assert after(same, same, same) is None
    assert after(same, other, same) == (
        (1,), "rank 1 has other weights than rank 0 after 8 updates",
    )  # fmt: skip
    assert after(other, same, same) == (
        (0,), "rank 0 has other weights than ranks 1, 2 after 8 updates",
    )  # fmt: skip
    assert after(other, same)[0] == (1,)  # of two, rank 0 is whom the other one is compared with


def test_many_ranks_are_counted():
    each = [Numbers(1, 1, 1, (float(rank),)) for rank in range(9)]
    assert after(*each)[1] == (
        "ranks 1, 2, 3, 4 and 4 more have other weights than rank 0 after 1 update"
    )


def test_a_cause_is_told_before_what_comes_of_it():
    first = Numbers(8, 8, 8, A)
    assert after(first, Numbers(8, 9, 9, B))[1] == (
        "rank 1 skipped other updates than rank 0 on the way to 8 updates"
    )
    assert after(first, Numbers(8, 8, 9, B), past={9: 9})[1] == (
        "rank 1 has stepped another number of times than rank 0: "
        "8 updates after 9 averaged gradients, where rank 0 made 9"
    )


def test_rank_0_has_stepped_another_number_of_times():
    mine, others = Numbers(8, 8, 9, A), Numbers(8, 8, 8, A)
    assert after(mine, others, others, past={8: 7}) == (
        (0,),
        (
            "rank 0 has stepped another number of times than ranks 1, 2: "
            "7 updates after 8 averaged gradients, where ranks 1, 2 made 8"
        ),
    )
    generic = "rank 0 has stepped another number of times than ranks 1, 2"
    assert after(mine, others, others)[1] == generic  # it is too long ago
    assert after(mine, others, others, past={8: 8})[1] == generic  # it has caught up


GOOD = (9, 9, True, False)


def test_ends():
    assert end(GOOD, GOOD) is None
    assert end(GOOD, (8, 9, True, False)) == (
        (1,), "rank 1 has made 8 updates, where rank 0 has made 9",
    )  # fmt: skip
    assert end((1, 9, True, False), GOOD, GOOD) == (
        (0,), "rank 0 has made 1 update, where ranks 1, 2 have made 9",
    )  # fmt: skip
    fallen = (9, 9, False, True)
    assert end(fallen, GOOD, fallen) == (
        (1,), "rank 1 ended after 9 updates, while ranks 0, 2 waited for it in another backward",
    )  # fmt: skip
    assert end(GOOD, fallen, GOOD)[1].endswith("rank 1 waited for them in another backward")


def test_an_end_that_says_nothing():
    stopped = (9, 10, False, False)
    assert end(stopped, (10, 10, False, False)) is None  # one failed, and the other was killed
    assert end(GOOD, stopped) is None
    assert end(GOOD, (10, 10, True, False)) is None  # not watched from the same time on
    assert end() is None


def test_a_weight_that_is_nan_on_one_rank():
    assert differs([float("nan")] * 3, [1.0, 1.0, 1.0])
    assert not differs([float("nan")] * 3, [float("inf")] * 3)


def test_weights_at_the_end():
    told = "rank 1 has other weights than rank 0 after 9 updates, at the end"
    assert end((9, 9, True, False, A), (9, 9, True, False, B)) == ((1,), told)
    assert end((9, 9, True, False, A), (9, 9, True, False, A)) is None
    assert end((9, 9, True, False, A), (9, 9, True, False, ())) is None  # written to since
    assert end((9, 9, True, False, A), (9, 9, False, False, B)) is None  # stopped
