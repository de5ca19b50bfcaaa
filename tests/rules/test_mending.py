"""What each rule's mend makes of a text: the proof is the checker's, the looks are tested here."""

from functools import partial

from instep.rules.mending import meeting
from instep.rules.moving import lifted
from instep.trace import (
    Backward,
    Called,
    Clip,
    Forward,
    LossKept,
    Mode,
    ScalerUpdate,
    Schedule,
    Step,
    Unscale,
    Zero,
)
from tests.rules.mends import Text, candidates

OPT = ("optimizer",)
backward = partial(Backward, OPT)
clip = partial(Clip, OPT)
step = partial(Step, "optimizer")
zero = partial(Zero, OPT)
unscale = partial(Unscale, "optimizer", scaler="scaler")
schedule = partial(Schedule, "optimizer", scheduler="scheduler")


def lines(*code):
    return "".join(f"{line}\n" for line in code)


def first(rule, text, *events):
    found = candidates(rule, text, *events)
    return found[0] if found else None


PLAIN = lines(
    "for x, y in loader:",
    "    loss = f(model(x), y)",
    "    # the gradients",
    "    loss.backward()",
    "    opt.step()",
)


def test_clear_in_a_plain_loop():
    events = [(backward, "loss.backward()"), (step, "opt.step()")]
    assert first("missing_zero_grad", PLAIN, *events) == PLAIN.replace(
        "    # the", "    opt.zero_grad()\n    # the"
    )


def test_clear_behind_a_gated_step():
    text = lines(
        "for i, x in enumerate(xs):",
        "\tscaler.scale(f(x) / 4).backward()",
        "\tif (i + 1) % 4 == 0:",
        "\t\tscaler.step(self.opt)",
        "\t\tscaler.update()",
        "\tlog()",
    )
    events = [(backward, "scaler.scale(f(x) / 4).backward()"), (step, "scaler.step(self.opt)")]
    assert first("missing_zero_grad", text, *events) == text.replace(
        "\tlog", "\t\tself.opt.zero_grad()\n\tlog"
    )


def test_clear_before_the_loop_over_pieces():
    text = lines(
        "for b in batches:",
        "    for m in range(4):",
        "        loss.backward()",
        "    opt.step()",
    )
    events = [(backward, "loss.backward()"), (step, "opt.step()")]
    assert first("missing_zero_grad", text, *events) == text.replace(
        "    for m", "    opt.zero_grad()\n    for m"
    )


def test_the_only_clear_moves_into_the_loop():
    text = "opt.zero_grad()\n" + PLAIN
    events = [(backward, "loss.backward()"), (step, "opt.step()"), (zero, "opt.zero_grad()")]
    assert first("missing_zero_grad", text, *events) == PLAIN.replace(
        "    # the", "    opt.zero_grad()\n    # the"
    )


def test_clear_both_of_two():
    text = lines("for x in xs:", "    loss.backward()", "    a.step()", "    b.step()")
    events = [(backward, "loss.backward()"), (step, "a.step()"), (step, "b.step()")]
    assert first("missing_zero_grad", text, *events) == text.replace(
        "    loss", "    a.zero_grad()\n    b.zero_grad()\n    loss"
    )


def test_a_step_that_has_no_name_cannot_be_cleared():
    text = lines("for x in xs:", "    loss.backward()", "    update(opt)")
    assert not candidates(
        "missing_zero_grad", text, (backward, "loss.backward()"), (step, "update(opt)")
    )


def test_an_early_clear_moves_behind_the_step():
    text = lines(
        "for x in xs:", "    loss.backward()", "    opt.zero_grad()  # é", "    opt.step()"
    )
    events = [(zero, "opt.zero_grad()"), (backward, "loss.backward()"), (step, "opt.step()")]
    assert first("cleared_before_step", text, *events) == lines(
        "for x in xs:", "    loss.backward()", "    opt.step()", "    opt.zero_grad()  # é"
    )


def test_a_clear_at_every_micro_batch_moves_into_the_gate():
    text = lines(
        "for i, x in enumerate(xs):",
        "    for o in opts: o.zero_grad()",
        "    loss.backward()",
        "    if (i + 1) % 4 == 0:",
        "        opt.step()",
    )
    events = [(zero, "o.zero_grad()"), (backward, "loss.backward()"), (step, "opt.step()")]
    assert first("cleared_before_step", text, *events) == lines(
        "for i, x in enumerate(xs):",
        "    loss.backward()",
        "    if (i + 1) % 4 == 0:",
        "        opt.step()",
        "        for o in opts: o.zero_grad()",
    )


def test_a_clear_per_piece_moves_before_the_pieces():
    text = lines(
        "for b in bs:",
        "    for p in b:",
        "        opt.zero_grad()",
        "        loss.backward()",
        "    opt.step()",
    )
    events = [(zero, "opt.zero_grad()"), (backward, "loss.backward()"), (step, "opt.step()")]
    assert first("cleared_before_step", text, *events) == lines(
        "for b in bs:",
        "    opt.zero_grad()",
        "    for p in b:",
        "        loss.backward()",
        "    opt.step()",
    )


def test_the_right_optimizer_is_cleared():
    text = lines("a.zero_grad()", "loss.backward()", "b.step()")
    events = [(partial(Zero, ("a",)), "a.zero_grad()"), (step, "b.step()")]
    assert first("wrong_optimizer_cleared", text, *events) == text.replace("a.zero", "b.zero")


def test_the_second_clear_goes():
    text = lines("a.zero_grad()", "if x:", "    a.zero_grad()", "loss.backward()")
    assert first("cleared_twice", text, (zero, "a.zero_grad()", 1)) == lines(
        "a.zero_grad()", "loss.backward()"
    )


def test_losses_of_a_window_are_divided():
    text = lines(
        "for i, x in enumerate(xs):",
        "    f(x).backward()",
        "    g(x).backward()",
        "    if (i + 1) % args.n == 0:",
        "        optimizer.step()",
    )
    found = first(
        "unscaled_accumulation",
        text,
        (backward, "f(x).backward()"),
        (backward, "g(x).backward()"),
        (step, "optimizer.step()"),
    )
    assert found == text.replace("f(x)", "(f(x) / args.n)").replace("g(x)", "(g(x) / args.n)")


def test_the_window_rules_use_the_gate():
    text = lines(
        "for i, x in enumerate(xs):",
        "    (f(x) / 4).backward()",
        "    if i % 4 == 0:",
        "        optimizer.step()",
    )
    off = first("off_by_one_window", text, (step, "optimizer.step()"))
    assert off == text.replace("if i %", "if (i + 1) %")
    left = first("leftover_window", off, (step, "optimizer.step()"))
    assert "== 0 or i + 1 == len(xs):" in left
    assert "    size = min(4, len(xs) - i // 4 * 4)\n    (f(x) / size)" in left


def test_a_clip_moves_before_the_step():
    text = lines("loss.backward()", "optimizer.step()", "if args.clip:", "    clip(ps)")
    events = [(clip, "clip(ps)"), (backward, "loss.backward()"), (step, "optimizer.step()")]
    assert first("clip_after_step", text, *events) == lines(
        "loss.backward()", "if args.clip:", "    clip(ps)", "optimizer.step()"
    )


def test_a_clip_before_any_backward_finds_the_step_by_its_name():
    text = lines("def f():", "    clip(ps)", "    loss.backward()", "    optimizer.step()")
    events = [(clip, "clip(ps)"), (backward, "loss.backward()")]
    assert first("clip_after_step", text, *events) == lines(
        "def f():", "    loss.backward()", "    clip(ps)", "    optimizer.step()"
    )


def test_a_clip_leaves_the_window():
    text = lines(
        "for i, x in enumerate(xs):",
        "    loss.backward()",
        "    clip(ps)  # 1.0",
        "    if (i + 1) % 4 == 0:",
        "        if scaler:",
        "            scaler.step(optimizer)",
        "        else:",
        "            optimizer.step()",
    )
    events = [(clip, "clip(ps)"), (backward, "loss.backward()"), (step, "optimizer.step()")]
    inner, outer, *_ = candidates("clip_inside_window", text, *events)
    assert inner.endswith(
        "        else:\n            clip(ps)  # 1.0\n            optimizer.step()\n"
    )
    assert "== 0:\n        clip(ps)  # 1.0\n        if scaler:" in outer


def test_unscale_before_the_clip():
    text = lines("scaler.scale(l).backward()", "clip(ps)", "scaler.step(opt)")
    events = [(clip, "clip(ps)"), (backward, "scaler.scale(l).backward()")]
    stepped = (step, "scaler.step(opt)")
    assert first("clip_before_unscale", text, *events, stepped) == text.replace(
        "clip", "scaler.unscale_(opt)\nclip"
    )
    late = text.replace("scaler.step", "scaler.unscale_(opt)\nscaler.step")
    assert first(
        "clip_before_unscale", late, *events, (unscale, "scaler.unscale_(opt)"), stepped
    ) == text.replace("clip", "scaler.unscale_(opt)\nclip")


def test_unscale_only_where_there_is_a_scaler():
    text = lines(
        "clip(ps)", "if scaler is not None:", "  scaler.step(opt)", "else:", "  opt.step()"
    )
    events = [(clip, "clip(ps)"), (step, "scaler.step(opt)")]
    assert first("clip_before_unscale", text, *events) == (
        "if scaler is not None:\n  scaler.unscale_(opt)\n" + text
    )


def test_a_clip_of_two_optimizers_needs_both_unscaled():
    text = lines("clip(ps)", "scaler.step(a)", "scaler.step(b)")
    found = first(
        "clip_before_unscale",
        text,
        (partial(Clip, ("a", "b")), "clip(ps)"),
        (partial(Step, "a", scaler="scaler"), "scaler.step(a)"),
    )
    assert found == "scaler.unscale_(a)\nscaler.unscale_(b)\n" + text


def test_the_scaler_is_updated():
    text = lines("scaler.scale(l).backward()", "scaler.step(opt)", "log()")
    assert first("scaler_without_update", text, (step, "scaler.step(opt)")) == text.replace(
        "log", "scaler.update()\nlog"
    )


def test_the_step_goes_through_the_scaler():
    text = lines("self.scaler.scale(l).backward()", "opt.step()")
    through = text.replace("opt.step()", "self.scaler.step(opt)")
    assert (
        first("scaler_bypassed", text, (step, "opt.step()")) == through + "self.scaler.update()\n"
    )
    update = "self.scaler.update()\n"
    assert first("scaler_bypassed", text + update, (step, "opt.step()")) == through + update
    assert first("scaler_bypassed", lines("opt.step()"), (step, "opt.step()")) is None


def test_the_loss_goes_through_the_scaler():
    text = lines("(a + b).backward()", "scaler.step(opt)")
    events = [(backward, "(a + b).backward()"), (step, "scaler.step(opt)")]
    assert first("unscaled_backward", text, *events).startswith("scaler.scale(a + b).backward()")


def test_one_unscaling_is_enough():
    text = lines("scaler.unscale_(o)", "clip(ps)", "scaler.unscale_(o)", "scaler.step(o)")
    found = first(
        "double_unscale", text, (unscale, "scaler.unscale_(o)", 1), (unscale, "scaler.unscale_(o)")
    )
    assert found == lines("scaler.unscale_(o)", "clip(ps)", "scaler.step(o)")
    gated = lines(
        "for i, x in enumerate(xs):",
        "    scaler.unscale_(optimizer)",
        "    if (i + 1) % 4 == 0:",
        "        clip_(ps)",
        "        scaler.step(optimizer)",
    )
    twice = (unscale, "scaler.unscale_(optimizer)")
    assert first("double_unscale", gated, twice, twice) == lines(
        "for i, x in enumerate(xs):",
        "    if (i + 1) % 4 == 0:",
        "        scaler.unscale_(optimizer)",
        "        clip_(ps)",
        "        scaler.step(optimizer)",
    )


def test_new_names_of_amp():
    text = "with torch.cuda.amp.autocast():\n    pass\n"
    called = partial(Called, "torch.cuda.amp.autocast")
    assert first("deprecated_cuda_amp", text, (called, "torch.cuda.amp.autocast()")) == (
        'with torch.amp.autocast("cuda"):\n    pass\n'
    )


def test_schedules_follow_updates():
    text = lines(
        "for x in xs:",
        "    scheduler.step()",
        "    scaler.step(opt)",
        "    scaler.update()",
    )
    events = [(schedule, "scheduler.step()"), (step, "scaler.step(opt)")]
    for rule in ("scheduler_before_step", "scheduler_per_micro_batch"):
        assert first(rule, text, *events) == lines(
            "for x in xs:",
            "    scaler.step(opt)",
            "    scaler.update()",
            "    scheduler.step()",
        )


def test_schedules_of_epochs_stay_out_of_the_batches():
    text = lines(
        "for epoch in range(9):",
        "    scheduler.step()",
        "    for x in xs:",
        "        opt.step()",
        "    test()",
    )
    events = [(schedule, "scheduler.step()"), (step, "opt.step()")]
    assert first("scheduler_before_step", text, *events) == lines(
        "for epoch in range(9):",
        "    for x in xs:",
        "        opt.step()",
        "    scheduler.step()",
        "    test()",
    )


def test_schedules_of_several_follow_all_updates():
    text = lines("for s in ss:", "    s.step()", "for o in os:", "    o.step()", "log()")
    events = [(schedule, "s.step()"), (step, "o.step()")]
    assert first("scheduler_before_step", text, *events) == lines(
        "for o in os:", "    o.step()", "for s in ss:", "    s.step()", "log()"
    )


def test_losses_are_kept_without_their_graph():
    kept = partial(LossKept, "loss", into="total", outlives=True)
    assert first("loss_graph_kept", "total += loss\n", (kept, "total += loss")) == (
        "total += loss.detach()\n"
    )


def test_zeros_are_not_written():
    code = "opt.zero_grad(set_to_none=False)"
    assert first("zero_fill", f"{code}  # é\n", (zero, code)) == "opt.zero_grad()  # é\n"
    filled = lines("if g:", "    p.grad.detach_()", "    p.grad.zero_()  # é")
    assert first("zero_fill", filled, (zero, "p.grad.zero_()")) == lines(
        "if g:", "    p.grad = None  # é"
    )
    assert first("zero_fill", "p.grad.fill_(0)\n", (zero, "p.grad.fill_(0)")) is None


EPOCHS = lines(
    "net.train()",
    "for epoch in range(9):",
    "    for x in xs:",
    "        loss = f(net(x))",
    "    net.eval()",
    "    test()",
)


def test_train_mode_comes_back():
    lost = (partial(Mode, "net", training=False), "net.eval()")
    forward = (partial(Forward, "net"), "net(x)")
    train = (partial(Mode, "net", training=True), "net.train()")
    moved, inserted, *_ = candidates("train_mode_lost", EPOCHS, lost, train, forward)
    assert moved == lines(
        "for epoch in range(9):",
        "    net.train()",
        "    for x in xs:",
        *EPOCHS.splitlines()[3:],
    )
    assert inserted == EPOCHS.replace("    for x", "    net.train()\n    for x")
    inside = lines(
        "for x in xs:", "    if x:", "        net.eval()", "        test()", "    net(x)"
    )
    assert first("train_mode_lost", inside, lost, forward) == inside.replace(
        "test()\n", "test()\n        net.train()\n"
    )


def test_train_mode_comes_back_from_another_function():
    text = lines(
        "def test(m):",
        "    m.eval()",
        "    return m(1)",
        "def train(net):",
        "    for epoch in range(9):",
        "        for x in xs:",
        "            f(net(x))",
        "        test(net)",
    )
    events = [
        (partial(Mode, "net", training=False), "m.eval()"),
        (partial(Forward, "net"), "net(x)"),
    ]
    assert first("train_mode_lost", text, *events) == text.replace(
        "        for x", "        net.train()\n        for x"
    )


HELPER = lines(
    "class T:",
    "    def reset(self):",
    '        """Why."""',
    "        self.opt.zero_grad()",
    "    def learn(self):",
    "        loss.backward()",
    "        self.reset()",
    "        self.opt.step()",
)


def test_the_call_of_a_helper_moves_for_it():
    events = [(zero, "self.opt.zero_grad()"), (step, "self.opt.step()")]
    assert first("cleared_before_step", HELPER, *events) == HELPER.replace(
        "        self.reset()\n        self.opt.step()\n",
        "        self.opt.step()\n        self.reset()\n",
    )
    # A helper that does more, or is called twice, stays where it is.
    more = HELPER.replace("        self.opt.zero", "        log()\n        self.opt.zero")
    twice = HELPER + "        self.reset()\n"
    for text in (more, twice):
        found = candidates("cleared_before_step", text, *events)
        assert not any(one.count("self.opt.step()\n        self.reset()") for one in found[:-1])


METHODS = lines(
    "class T:",
    "    def back(self, loss):",
    "        loss.backward()",
    "        clip(self.ps, {limit})",
    "    def update(self):",
    "        self.opt.step()",
)


def test_what_belongs_to_an_object_moves_between_its_methods():
    events = [(backward, "loss.backward()"), (step, "self.opt.step()")]
    text = METHODS.format(limit=1.0)
    assert first("clip_inside_window", text, (clip, "clip(self.ps, 1.0)"), *events) == lines(
        "class T:",
        "    def back(self, loss):",
        "        loss.backward()",
        "    def update(self):",
        "        clip(self.ps, 1.0)",
        "        self.opt.step()",
    )
    local = METHODS.format(limit="loss")
    assert not candidates("clip_inside_window", local, (clip, "clip(self.ps, loss)"), *events)


def test_statements_lift_out_of_branches_only():
    shown = Text("for x in xs:\n    if a:\n        with b:\n            c()\n    d()\n")
    source, inner = shown.source, shown.statement("c()")
    assert len(list(lifted(source, inner, source.tree))) == 3
    assert list(lifted(source, inner, inner)) == [inner]
    one, other = meeting(source, inner, shown.statement("d()"))
    assert (source.code(one)[:4], source.code(other)) == ("if a", "d()")


def test_events_of_other_files_mend_nothing():
    stray = partial(ScalerUpdate, "scaler")
    text = lines("loss.backward()", "scaler.step(opt)")
    assert not candidates("missing_zero_grad", text, (backward, "loss.backward()"), (stray, "loss"))
