import pytest

from instep.rules import parameters_not_in_optimizer as rule
from instep.trace import Created, Measured, Mode, Opaque, Rebound
from tests.rules.lines import at, backward, judged, one, step, zero


def model(name, **facts):
    return at(1, Created(name, "model", {"type": "torch.nn.Linear", "trainable": True} | facts))


def optimizer(*models, name="optimizer", **facts):
    return at(3, Created(name, "optimizer", {"models": models} | facts))


BOTH = [model("encoder"), model("decoder")]


def loop(*models, **more):
    return [zero(), backward(models=models or ("encoder", "decoder"), **more), step()] * 2


def test_a_model_left_out():
    severity, message = judged(rule, *BOTH, optimizer("decoder"), *loop())[10]
    assert severity == "warning"
    assert message.startswith("`encoder` is held by no optimizer, so it is never trained")


def test_the_evidence():
    finding = one(rule, *BOTH, optimizer("decoder"), *loop())
    assert [getattr(e, "id", e.kind) for e in finding.evidence] == [
        "backward",
        "encoder",
        "optimizer",
    ]
    assert {(r.place.line, r.label) for r in finding.related} == {
        (1, "not held by an optimizer"),
        (3, "optimizer made here"),
    }


def test_back_in_train_mode():
    modes = [Mode("encoder", training=False), Mode("encoder", training=True)]
    assert judged(rule, *BOTH, optimizer("decoder"), *modes, *loop()).keys() == {10}


def test_a_model_is_told_at_the_first_loss_that_comes_from_it():
    second = backward(12, models=("encoder", "decoder"))
    events = [*BOTH, optimizer("decoder"), *loop(), second, step(), *loop(), second, step()]
    assert judged(rule, *events).keys() == {10}
    other = [model("third"), backward(12, models=("encoder", "decoder", "third")), step()]
    found = judged(rule, *BOTH, optimizer("decoder"), *loop(), *other)
    assert found.keys() == {10, 12}
    assert found[12][1].startswith("`third` is held by no optimizer")


COPIED = [model("base"), model("copy"), optimizer("base"), *loop("copy", optimizers=())]


def test_the_optimizer_holds_the_original_and_the_copy_is_trained():
    _, message = judged(rule, *COPIED)[10]
    assert message.startswith("`copy` is held by no optimizer")


TARGET = [model("target_net"), model("decoder")]
HELD = optimizer("decoder")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*BOTH, optimizer("encoder", "decoder"), *loop()], id="both"),
        pytest.param([*BOTH, HELD, optimizer("encoder", name="b"), *loop()], id="two optimizers"),
        pytest.param(
            [model("net.encoder"), model("decoder"), optimizer("net", "decoder"),
             *loop("net.encoder", "decoder")], id="as a part"),
        pytest.param(
            [model("net"), model("decoder"), optimizer("net.head", "decoder"),
             *loop("net", "decoder")], id="in part"),
        pytest.param([model("encoder", frozen=True), BOTH[1], HELD, *loop()], id="frozen"),
        pytest.param([model("encoder", frozen=("w",)), BOTH[1], HELD, *loop()], id="half frozen"),
        pytest.param([model("encoder", type=None), BOTH[1], HELD, *loop()], id="from elsewhere"),
        pytest.param([model("encoder", distributed="ddp"), BOTH[1], HELD, *loop()], id="wrapped"),
        pytest.param([*BOTH, HELD, Mode("encoder", training=False), *loop()], id="eval mode"),
        pytest.param([*BOTH, at(3, Created("optimizer", "optimizer")), *loop()], id="unknown"),
        pytest.param([*BOTH, HELD, *loop(), step(31, "b")], id="an optimizer from elsewhere"),
        pytest.param([*BOTH, HELD, Opaque((), "f"), *loop()], id="opaque"),
        pytest.param([*BOTH, HELD, Rebound("e", "encoder", "x"), *loop()], id="renamed"),
        pytest.param([*BOTH, optimizer(), *loop("encoder")], id="an image is optimized"),
        pytest.param([*BOTH, HELD, *loop(optimizers=())], id="no update"),
        pytest.param(
            [model("base", type="Transform"), *COPIED[1:]], id="optimized by something else"),
        pytest.param([*COPIED, backward(models=("base",))], id="an optimizer that is not idle"),
        pytest.param([model("loss", trainable=None), BOTH[1], HELD, *loop("loss", "decoder")],
                     id="a loss without parameters"),
        pytest.param([model("encoder", held=True), BOTH[1], HELD, *loop()], id="held as a part"),
        pytest.param([*BOTH, HELD, backward(models=None), step()], id="unknown models"),
        pytest.param([*TARGET, HELD, *loop("target_net", "decoder")], id="a target network"),
        pytest.param(
            [model("a", type="torchvision.models.vgg16"), BOTH[1], HELD, *loop("a", "decoder")],
            id="a perceptual loss"),
    ],
)  # fmt: skip
def test_silent(events):
    assert judged(rule, *events) == {}


WATCH = Created("job", "job", {"source": "watch"})
RUNNING = Created("job", "job", {"source": "watch", "running": True})


def foreign(subject, size=4_100_000.0, line=10):
    return at(line, Measured(None, "foreign-gradients", size, "bytes", subject))


def growing(subject):
    return Measured(None, "foreign-backwards", 38.0, "backwards", subject)


def evaluated(subject):
    return Measured(None, "foreign-evaluated", 3.0, "modules", subject)


HEAD, ENCODER = "12 parameters of `model.head`", "2 parameters of `encoder`"


@pytest.mark.parametrize("grows", [HEAD, ENCODER])
def test_a_part_of_a_trained_model_in_a_running_job(grows):
    events = [
        WATCH,
        model("model"),
        optimizer("model"),
        *loop("model"),
        foreign(HEAD),
        growing(grows),
    ]
    says = judged(rule, *events)[10]
    verb = "grow" if grows == HEAD else "are computed"
    message = (
        "12 parameters of `model.head` are in no optimizer: 4.1 MB of gradients "
        f"{verb} and are never used."
    )
    assert says == ("warning", message)


HEADS = [
    "2 parameters of `linear`",
    "1 parameter of `linear#2`",
    "1,200 parameters of `encoder`",
    "1 parameter of `critic`",
    "1 parameter of `gate`",
]


def test_what_is_left_out_at_one_place_is_told_together():
    left = ("linear", "linear#2", "encoder", "critic", "gate")
    events = [*map(model, left), model("decoder"), optimizer("decoder"), *loop("decoder", *left)]
    shown = [foreign(head, 1000.0) for head in HEADS]
    assert judged(rule, *events, *shown)[10][1].startswith(
        "1,205 parameters of `linear`, `encoder`, `critic` and 1 more are in no optimizer: "
        "5.0 kB of gradients are computed"
    )
    two = judged(rule, *events, *shown[1:3])[10][1]
    assert two.startswith("1,201 parameters of `linear` and `encoder` are in no optimizer: 2.0 kB")


def test_parts_of_a_trained_model_are_told_together():
    events = [WATCH, model("model"), optimizer("model"), *loop("model")]
    heads = [foreign(f"2 parameters of `model.{head}`", 72.0) for head in ("a", "b")]
    grow = [growing(head.subject) for head in heads]
    assert judged(rule, *events, *heads, *grow)[10][1] == (
        "4 parameters of `model.a` and `model.b` are in no optimizer: 144 bytes of gradients "
        "grow and are never used."
    )


def test_a_model_that_is_not_trained_at_all_is_nobodys_in_a_running_job():
    events = [model("model"), optimizer("model"), *loop("model")]
    assert judged(rule, *events, foreign("12 parameters of `critic`")) == {}
    assert judged(rule, *events, foreign("some names")) == {}


def test_a_model_left_out_has_its_number_in_a_running_job():
    events = [*BOTH, optimizer("decoder"), *loop(), foreign("1 parameter of `encoder`", 900.0)]
    message = "1 parameter of `encoder` is in no optimizer: 900 bytes of gradients are computed"
    assert judged(rule, *events)[10][1].startswith(message)
    elsewhere = [*events[:-1], foreign("1 parameter of `encoder`", line=99)]
    assert judged(rule, *elsewhere)[10][1].startswith("`encoder` is held by no optimizer")


@pytest.mark.parametrize(
    ("measurements", "severity", "says"),
    [
        ([growing(ENCODER)], "warning", "grow and are never used."),
        ([], "info", "`requires_grad_(False)` saves that."),
        ([growing(ENCODER), evaluated(ENCODER)], "info", "`requires_grad_(False)` saves that."),
        ([growing(ENCODER), evaluated(HEAD)], "warning", "grow and are never used."),
        ([growing(ENCODER), RUNNING], "info", "`requires_grad_(False)` saves that."),
    ],
    ids=["grows", "is cleared", "in eval mode", "another is in eval mode", "it is not over"],
)
def test_how_bad_it_is_in_a_running_job(measurements, severity, says):
    events = [WATCH, *BOTH, optimizer("decoder"), *loop(), foreign(ENCODER), *measurements]
    told, message = judged(rule, *events)[10]
    assert told == severity
    assert message.endswith(says)


def test_of_several_models_the_worst_is_told():
    models = [model("encoder"), model("judge"), model("decoder")]
    subject = "2 parameters of `judge`"
    turns = loop("judge", "encoder", "decoder")
    gauges = [foreign(subject), growing(subject), evaluated(subject)]
    gauges += [foreign(ENCODER), growing(ENCODER)]
    severity, message = judged(rule, WATCH, *models, optimizer("decoder"), *turns, *gauges)[10]
    assert (severity, "`encoder`" in message) == ("warning", True)


def test_what_does_not_grow_waits_for_the_end():
    events = [*BOTH, optimizer("decoder"), *loop()]
    assert judged(rule, RUNNING, *events) == {}
    assert judged(rule, RUNNING, *events, foreign(ENCODER)) == {}
    assert judged(rule, WATCH, *events)[10][0] == "warning"
