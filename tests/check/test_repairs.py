"""What real code, a newcomer and an attacker taught, from source to finding or fix."""

from __future__ import annotations

from instep.check.judge import judge
from instep.check.sources import units_from_bytes
from instep.cli import main
from tests.check.repairs import ACCUMULATE, HEAD, MADE, NEVER, codes, mended, unit_of


def test_the_loop_that_all_others_here_vary_is_wrong():
    assert codes(MADE + NEVER) == {"INS101"}


def test_text_that_is_executed_hides_a_loop_only_from_inside():
    assert codes(MADE + "exec(open('settings.py').read())\n" + NEVER) == {"INS101"}
    assert codes(MADE + NEVER + "    exec(after)\n") == set()


def test_the_numbers_of_a_message_are_the_defaults_in_sight():
    loop = ACCUMULATE.format(n="every")
    text = MADE + "def train(loader, every=6):\n" + loop
    assert "6 micro-batches" in judge(unit_of(text)).findings[0].message
    option = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--every', default=5)\n"
    )
    text = MADE + option + "args = p.parse_args()\nif True:\n" + ACCUMULATE.format(n="args.every")
    assert "5 micro-batches" in judge(unit_of(text)).findings[0].message


CLIPPED = (
    MADE
    + """\
for i, (x, y) in enumerate(loader):
    (F.mse_loss(model(x), y) / 4).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    {use}
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
)


def test_what_is_read_where_it_is_stays_there():
    assert "INS301" in codes(CLIPPED.format(use="print(norm)"))
    after = mended(CLIPPED.format(use="print(norm)"))
    assert after.index("norm = ") < after.index("print(norm)") < after.index("if (i")


def test_a_fix_uses_no_name_of_a_comprehension():
    text = (
        MADE
        + "opts = [optimizer]\n"
        + NEVER.replace("optimizer.step()", "[o.step() for o in opts]")
    )
    assert codes(text) == {"INS101"}
    assert "o.zero_grad()" not in mended(text)


def test_a_loader_that_may_have_no_length_is_not_asked_for_it():
    text = MADE + (
        "from torch.utils.data import IterableDataset\nfor epoch in range(9):\n"
        "    for i, (x, y) in enumerate(loader):\n"
        "        (F.mse_loss(model(x), y) / 4).backward()\n"
        "        if (i + 1) % 4 == 0:\n"
        "            optimizer.step()\n"
        "            optimizer.zero_grad()\n"
    )
    assert "INS202" in codes(text)
    assert "len(loader)" not in mended(text)


def test_a_source_is_not_overwritten_by_a_report(tmp_path, capsys):
    file = tmp_path / "train.py"
    file.write_text(MADE + NEVER)
    assert main(["check", "--no-cache", "--output-file", str(file), str(file)]) == 2
    assert main(["check", "--no-cache", "--write-baseline", str(file), str(file)]) == 2
    assert file.read_text() == MADE + NEVER
    assert "which would be lost" in capsys.readouterr().err


def test_a_sketch_in_a_text_leaves_out_a_lot():
    loop = "for data in loader:\n    loss = {}\n    loss.backward()\n    optimizer.step()\n"
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"

    def severities(loss, name="page.md", before=""):
        text = before + loop.format(loss)
        text = f"```python\n{text}```\n" if name.endswith("md") else text
        [unit] = units_from_bytes(text.encode(), name)
        return [finding.severity.name.lower() for finding in judge(unit).findings]

    assert severities("forward()") == ["warning"]
    assert severities("F.mse_loss(model(data), data)") == ["warning"]
    assert severities("F.mse_loss(model(data), data)", before=made) == ["error"]
    assert severities("forward()", "train.py") == ["error"]


def test_a_batch_that_an_attack_changes_goes_through_the_model_again():
    text = (
        MADE
        + """\
for x, y in loader:
    {clean}
    F.mse_loss(model(x + delta), y).backward()
    optimizer.zero_grad()
    loss = F.mse_loss(model(perturb(x, delta)), y)
    loss.backward()
    optimizer.step()
"""
    )
    assert codes(text.format(clean="delta.grad = None")) == set()


def test_a_message_reads_well():
    text = (
        HEAD
        + """\
def train(loader, optimizer):
    for x, y in loader:
        if a or b:
            if c:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
"""
    )
    [finding] = judge(unit_of(text)).findings
    assert finding.condition == "when (a or b) and c"
    [finding] = judge(unit_of(text.replace("if c:", "if True:"))).findings
    assert finding.condition == "when a or b"
    shared = (
        HEAD
        + """\
made = []
for model in (net_a, net_b):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made.append(optimizer)
for x, y in loader:
    F.mse_loss(net_a(net_b(x)), y).backward()
    made[0].step()
    made[1].step()
"""
    )
    [finding] = judge(unit_of(shared)).findings
    assert finding.message.startswith("`optimizer` is never cleared")
