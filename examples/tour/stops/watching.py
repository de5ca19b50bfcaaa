"""A wrong job, watched while it runs: what only its run can show, and the page about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from examples.tour.command import instep
from examples.tour.stop import Seen, TourError

JOB = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
teacher = torch.randn(64, 10)
images = torch.randn(520, 64)
loader = DataLoader(TensorDataset(images, (images @ teacher).argmax(1)), batch_size=8, shuffle=True)
model = torch.nn.Sequential()
model.features = torch.nn.Linear(64, 256)
model.act = torch.nn.ReLU()
model.head = torch.nn.Linear(256, 10)

decayed = [p for name, p in model.named_parameters() if "head" in name]
others = [p for name, p in model.named_parameters() if "feature." in name]
optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], 1e-3)
for epoch in range(8):
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
print(f"loss {loss.item():.2f}")
"""
"""Nothing in it fails. `feature.` is misspelt, so the first layer is in no group; losses of four
batches are added up and not divided, each sum is clipped on the way, and the last batch of an
epoch waits for the next one."""

MENDED = (
    JOB.replace('"feature."', '"features."')
    .replace("F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y) / (4 if i < 64 else 1)")
    .replace("        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", "")
    .replace("if (i + 1) % 4 == 0:", "if (i + 1) % 4 == 0 or i + 1 == len(loader):")
    .replace(
        "            optimizer.step()\n",
        "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "            optimizer.step()\n",
    )
)
FOUND = {"INS201", "INS202", "INS301", "INS502"}


def stop(out: Path) -> Seen:
    """Watch the job, then the same job mended, and leave the page."""
    folder = out / "job"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(JOB, encoding="utf-8")
    (folder / "mended.py").write_text(MENDED, encoding="utf-8")
    print(f"A job in {folder}. It trains, its loss falls. Watched while it runs:\n", flush=True)
    instep(folder, "watch", "--strict", "--report", "report.html", "job.py", expect=1)
    print("The same job, mended. Whoever does it right hears nothing:\n", flush=True)
    words = ("--strict", "--output-format", "json", "--output-file", "mended.json", "mended.py")
    instep(folder, "watch", *words, expect=0)
    return _seen(folder, out)


def _seen(folder: Path, out: Path) -> Seen:
    """Check what was seen before it is said."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    missing = {code for code in FOUND if code not in page}
    if missing:
        raise TourError(f"the page does not tell of {', '.join(sorted(missing))}")
    left = json.loads((folder / "mended.json").read_text(encoding="utf-8"))
    if left:
        raise TourError(f"the mended job is said to have {len(left)} mistakes")
    report = out / "watched.html"
    shutil.copyfile(folder / "report.html", report)
    return Seen(
        f"`instep watch` found {len(FOUND)} mistakes in a job while it ran, one of which no "
        f"reader of its source can see; open {report} in a browser.",
        (report,),
    )
