"""Programs that look like training code and follow no plan, for tests that no program may fail."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import assume
from hypothesis import strategies as st

LABELLED = Path(__file__).parent / "labelled"
SOURCES = [path.read_text(encoding="utf-8") for path in sorted(LABELLED.glob("*/wrong/*.py"))]
SOURCES += [path.read_text(encoding="utf-8") for path in sorted(LABELLED.glob("*/right/*.py"))]
ARTICLES = [path.read_text(encoding="utf-8") for path in sorted(LABELLED.glob("articles/*.md"))]
STATEMENTS = [
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False)",
    "model.zero_grad()",
    "[o.zero_grad() for o in optimizers]",
    "for p in model.parameters(): p.grad = None",
    "x, y = next(batches)",
    "output = model(x)",
    "loss = criterion(model(x), y)",
    "loss = criterion(output, y) / n",
    "loss = loss / n if n > 1 else loss",
    "loss = loss + 0.1 * aux",
    "aux = criterion(model(y), x).mean()",
    "(total := total + loss.item())",
    "total += loss",
    "losses.append(loss)",
    "loss.backward()",
    "loss.backward(retain_graph=True)",
    "(loss / n).backward()",
    "scaler.scale(loss).backward()",
    "torch.autograd.backward([loss, aux])",
    "accelerator.backward(loss)",
    "optimizer.step()",
    "optimizer.step(closure)",
    "getattr(optimizer, 'step')()",
    "scaler.step(optimizer)",
    "scaler.step(optimizer); scaler.update()",
    "scaler.update()",
    "scaler.unscale_(optimizer)",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "torch.nn.utils.clip_grad_value_(group['params'], clip)",
    "scheduler.step()",
    "scheduler.step(epoch)",
    "norm = sum(p.grad.norm() ** 2 for p in model.parameters() if p.grad is not None)",
    "for p in model.parameters(): p.grad /= n",
    "model.train()",
    "model.eval()",
    "model, optimizer = accelerator.prepare(model, optimizer)",
    "optimizer = torch.optim.Adam(model.parameters(), lr=rate)",
    "optimizers = [optimizer, torch.optim.SGD(head.parameters(), lr=rate)]",
    "scaler = torch.cuda.amp.GradScaler(enabled=amp)",
    "model.head = torch.nn.Linear(4, n)",
    "count += 1",
    "count = 0",
    "n = max(1, int(n))",
    "step = optimizer.step",
    "step()",
    "update(loss, optimizer)",
    "helper(model, optimizer)",
    "trainer.fit(loader)",
    "print(f'{epoch}: {loss.item():.3f}')",
    "del loss",
    "pass",
    "assert loss is not None, 'no loss'",
    "table[epoch, ::2], *rest = {**options, 'n': n}.values()",
    "lr = (lambda a, *b, c=1, **d: a if b else c)(rate)",
    "x = x.to(device, non_blocking=True)[..., None] @ ~y",
    "# a comment",
    "",
]
LEAVING = ["continue", "break", "return", "return loss", "raise StopIteration", "yield loss"]
BLOCKS = [
    "if (i + 1) % n == 0:",
    "if i % n == 0 and i > 0:",
    "if (i + 1) % n == 0 or i + 1 == len(loader):",
    "if count >= n:",
    "if scaler is not None:",
    "if torch.isfinite(loss):",
    "if not debug:",
    "for i, (x, y) in enumerate(loader):",
    "for i, batch in enumerate(tqdm(loader), start=1):",
    "for x, y in zip(loader, targets):",
    "for epoch in range(epochs):",
    "for micro in range(n):",
    "for patch in patches:",
    "for o in optimizers:",
    "while True:",
    "while count < n:",
    "while (batch := next(batches, None)) is not None:",
    "with torch.no_grad():",
    "with torch.autocast('cuda', dtype=torch.bfloat16):",
    "with accelerator.accumulate(model):",
    "with model.no_sync() if i % n else nullcontext() as context:",
]
PAIRS = [
    ("if amp:", "else:"),
    ("if i % n:", "elif last:"),
    ("try:", "except RuntimeError as error:"),
    ("try:", "finally:"),
    ("for x in loader:", "else:"),
    ("match mode:\n    case 'train':", "    case _:"),
]
FUNCTIONS = [
    "def update(loss, optimizer, *, n=4):",
    "def helper(model, optimizer):",
    "def train(model, loader, optimizer, n):",
    "def closure():",
    "async def train_async(loader, *arguments, **options):",
    "@torch.enable_grad()\ndef main(n: int = 4) -> None:",
]
METHODS = [
    "def __init__(self, model, optimizer):",
    "def fit(self, loader):",
    "def step(self, loss):",
    "def training_step(self, batch, i):",
    "@property\ndef rate(self):",
]
HEADS = [
    "import torch",
    "from torch import nn",
    "from torch.cuda.amp import autocast, GradScaler",
    "from .helpers import update",
    "model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)",
    "scaler = torch.amp.GradScaler('cuda')",
    "criterion = torch.nn.CrossEntropyLoss(ignore_index=0)",
    "loader = torch.utils.data.DataLoader(data, batch_size=8)",
    "accelerator = accelerate.Accelerator(gradient_accumulation_steps=4)",
    "n = 4",
]
SOUP = [
    *"()[]{}:;,.=+-*/%@\n\t\"'\\#",
    *(" if ", " for ", " in ", " else ", "def ", "class ", "\n    ", "lambda: ", "await ", "None"),
    *(".backward()", ".step()", ".zero_grad()", "loss", "optimizer", "# instep: ignore[", "\ufeff"),
]


def indented(lines):
    return [f"    {line}" if line else line for text in lines for line in text.split("\n")]


def body_of(lines):
    real = any(line.strip() and not line.strip().startswith("#") for line in lines)
    return indented(lines if real else [*lines, "pass"])


@st.composite
def bodies(draw, depth=0):
    lines = []
    for _ in range(draw(st.integers(1, 7 - 2 * depth))):
        kind = draw(st.integers(0, 9))
        if kind < 6 or depth == 3:
            lines.append(draw(st.sampled_from(STATEMENTS)))
        elif kind < 8:
            lines += [draw(st.sampled_from(BLOCKS)), *body_of(draw(bodies(depth + 1)))]
        elif kind == 8:
            first, second = draw(st.sampled_from(PAIRS))
            inner = [body_of(draw(bodies(depth + 1))) for _ in range(2)]
            if first.startswith("match"):
                inner = [indented(each) for each in inner]
            lines += [*first.split("\n"), *inner[0], second, *inner[1]]
        else:
            lines.append(draw(st.sampled_from(LEAVING)))
    return lines


@st.composite
def defined(draw, heads):
    return [*draw(st.sampled_from(heads)).split("\n"), *body_of(draw(bodies(1)))]


@st.composite
def programs(draw):
    """A module: imports, functions, a class, code at the top; always with a loop over batches."""
    lines = draw(st.lists(st.sampled_from(HEADS), max_size=8, unique=True).map(in_order))
    for _ in range(draw(st.integers(0, 2))):
        lines += draw(defined(FUNCTIONS))
    if draw(st.booleans()):
        methods = draw(st.lists(defined(METHODS), min_size=1, max_size=3))
        lines += ["class Trainer(Base):", *indented(line for each in methods for line in each)]
        lines += ["trainer = Trainer(model, optimizer)"]
    loop = [draw(st.sampled_from([b for b in BLOCKS if b.startswith(("for", "while"))]))]
    loop += body_of([*draw(bodies(1)), *draw(st.sampled_from([[], ["loss.backward()"]]))])
    if draw(st.booleans()):
        loop = [
            "def run(model, loader, optimizer, n):",
            *indented(loop),
            "run(model, loader, o, 4)",
        ]
    return "\n".join([*lines, *loop]) + draw(st.sampled_from(["", "\n"]))


def in_order(lines):
    return sorted(lines, key=HEADS.index)


@st.composite
def damaged(draw, kind):
    """A source with a piece cut out, put in twice, moved, or with words that do not belong."""
    text = draw(st.sampled_from(ARTICLES if kind == "markdown" else SOURCES))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        how = draw(st.sampled_from(["truncate", "cut", "double", "insert", "lines"]))
        if how == "truncate":
            text = text[:end]
        elif how == "cut":
            text = text[:start] + text[min(end, start + 40) :]
        elif how == "double":
            text = text[:end] + text[max(start, end - 200) :]
        elif how == "insert":
            soup = "".join(draw(st.lists(st.sampled_from(SOUP), min_size=1, max_size=6)))
            text = text[:start] + soup + text[start:]
        else:
            rows = text.split("\n")
            at = text.count("\n", 0, start)
            to = draw(st.integers(0, len(rows)))
            moved = rows.pop(at)
            text = "\n".join([*rows[:to], moved, *rows[to:]])
    return text


@st.composite
def rearranged(draw):
    """A program with lines left out, doubled or moved; it still parses."""
    rows = draw(st.sampled_from(SOURCES)).split("\n")
    for _ in range(draw(st.integers(1, 3))):
        at, to = draw(st.tuples(*[st.integers(0, len(rows) - 1)] * 2))
        row = rows[at]
        if draw(st.booleans()):
            del rows[at]
        if draw(st.booleans()) or not rows:
            width = len(rows[to]) - len(rows[to].lstrip()) if to < len(rows) else 0
            rows.insert(to, " " * width + row.lstrip())
    text = "\n".join(rows)
    try:
        ast.parse(text)
    except SyntaxError:
        assume(False)
    return text
