import ast

import pytest

from instep.check.rewriting import apply
from instep.rules.amp_names import renamed
from instep.rules.source import Source


def new(text, call=0):
    tree = ast.parse(text)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)] or [
        n.decorator_list[0] for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)
    ]
    edits = renamed(Source(text, tree, {}), calls[call])
    if edits is None:
        return None
    made = apply(text, edits)
    ast.parse(made)
    return made


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ("torch.cuda.amp.autocast()", 'torch.amp.autocast("cuda")'),
        ("torch.cuda.amp.autocast(True)", 'torch.amp.autocast("cuda", enabled=True)'),
        (
            "torch.cuda.amp.autocast(a, dtype=b)",
            'torch.amp.autocast("cuda", enabled=a, dtype=b)',
        ),
        ("torch.cuda.amp.GradScaler(1024.0)", 'torch.amp.GradScaler("cuda", 1024.0)'),
        ("x = torch.cuda.amp.GradScaler()  # é", 'x = torch.amp.GradScaler("cuda")  # é'),
        (
            "from torch.cuda.amp import autocast as a, GradScaler as G\na()\nG(enabled=x)",
            'from torch.amp import autocast as a, GradScaler as G\na("cuda")\nG("cuda", enabled=x)',
        ),
        (
            "from torch.cuda import amp\nwith amp.autocast(): pass",
            'from torch import amp\nwith amp.autocast("cuda"): pass',
        ),
        (
            "import torch.cuda.amp as amp\namp.GradScaler()",
            'import torch.amp as amp\namp.GradScaler("cuda")',
        ),
        (
            "@torch.cuda.amp.custom_fwd\ndef f(): pass",
            '@torch.amp.custom_fwd(device_type="cuda")\ndef f(): pass',
        ),
        (
            "@torch.cuda.amp.custom_fwd(cast_inputs=t)\ndef f(): pass",
            '@torch.amp.custom_fwd(device_type="cuda", cast_inputs=t)\ndef f(): pass',
        ),
        ("torch.cuda.amp.autocast(\n    a,\n)", 'torch.amp.autocast(\n    "cuda", enabled=a,\n)'),
        ("print('')\ntorch.cuda.amp.autocast()", None),
    ],
)
def test_names(old, expected):
    assert new(old) == expected


def test_the_quotes_are_those_of_the_file():
    assert new("torch.cuda.amp.autocast()\nx = ['a', 'b']") == (
        "torch.amp.autocast('cuda')\nx = ['a', 'b']"
    )


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda.amp import autocast\nautocast()\nf(autocast)",
        "from torch.cuda.amp import autocast, other\nautocast()\nother()",
        "autocast()",
        "torch.cuda.amp.autocast(*args)",
        "from torch.cuda import amp, nccl\namp.autocast()",
        "get()()",
    ],
)
def test_what_is_left_alone(text):
    assert new(text) is None
