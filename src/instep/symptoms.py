"""The symptom index: from what somebody sees while training to the rules and pages about it."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import NamedTuple


class Cause(NamedTuple):
    """A rule or page, by name, and in one sentence how it makes the symptom."""

    see: str
    why: str


class Symptom(NamedTuple):
    """Something that people see."""

    name: str
    words: str
    """Other words that people use for it."""
    causes: tuple[Cause, ...]


SYMPTOMS: tuple[Symptom, ...] = (
    Symptom(
        "the loss oscillates",
        "oscillating unstable noisy jumps spikes jitter fluctuates zigzag swings up and down",
        (
            Cause("missing-zero-grad", "Old gradients pull every update back and forth."),
            Cause("unscaled-accumulation", "The update is n times too large for the rate."),
            Cause("step-per-patch", "Each patch moves the weights by itself, with its own noise."),
            Cause("clip-after-step", "No update is ever clipped, so single batches throw it off."),
            Cause("off-by-one-window", "Windows of different sizes make updates of unlike size."),
            Cause(
                "leftover-window", "The first window of an epoch holds the last of the one before."
            ),
        ),
    ),
    Symptom(
        "the loss does not go down, nothing learns",
        "decrease decreasing stuck constant flat plateau not learning doesnt learn converge "
        "improve train accuracy random chance",
        (
            Cause("cleared-before-step", "The gradients are gone when the step comes."),
            Cause("step-without-backward", "The step has no gradients to work with."),
            Cause("parameters-not-in-optimizer", "What should learn is not given to an optimizer."),
            Cause("replaced-parameters", "The optimizer updates tensors that the model has lost."),
            Cause("parameter-without-gradient", "No gradient reaches what should learn."),
            Cause("vanishing-or-exploding-update", "Updates are too small for the weights."),
            Cause(
                "wrong-optimizer-cleared", "One optimizer drowns in gradients of the other's loss."
            ),
            Cause("double-normalisation", "The update is n times too small for the learning rate."),
            Cause(
                "scaler-without-update", "A loss scale that never adapts skips all steps, or none."
            ),
        ),
    ),
    Symptom(
        "the loss goes up",
        "diverges diverging divergence increases increasing explodes rises blows training unstable",
        (
            Cause(
                "missing-zero-grad", "Every update also holds the gradients of all batches before."
            ),
            Cause(
                "unscaled-accumulation", "The update is n times too large for the learning rate."
            ),
            Cause("scaler-bypassed", "The step uses gradients multiplied by the loss scale."),
            Cause("vanishing-or-exploding-update", "Updates are too large for the weights."),
            Cause("clip-inside-window", "Clipping a partial sum does not bound the update."),
        ),
    ),
    Symptom(
        "gradients explode",
        "exploding gradient norm huge large grad overflow",
        (
            Cause("missing-zero-grad", "Gradients of all batches add up."),
            Cause("unscaled-accumulation", "Gradients of n micro-batches add up undivided."),
            Cause("clip-before-unscale", "The clip measures gradients times the loss scale."),
            Cause("clip-after-step", "The clip comes when the update has been made."),
            Cause(
                "scaler-bypassed", "Gradients are still multiplied by the loss scale at the step."
            ),
        ),
    ),
    Symptom(
        "gradients vanish or are always clipped",
        "vanishing zero small tiny gradient norm clip clipped always",
        (
            Cause("clip-before-unscale", "Scaled gradients always exceed the limit of the clip."),
            Cause("double-normalisation", "The loss is divided by n twice."),
            Cause("cleared-before-step", "The gradients are cleared before anybody uses them."),
            Cause("unscaled-backward", "Without the loss scale, fp16 gradients round to zero."),
        ),
    ),
    Symptom(
        "a gradient is None",
        "nonetype attributeerror none grad object has no attribute data norm p.grad param.grad",
        (
            Cause(
                "grad-may-be-none", "Clearing sets .grad to None; unused parameters never get one."
            ),
            Cause("cleared-before-step", "It is read after it was cleared."),
            Cause("parameter-without-gradient", "A part of the model never gets a gradient."),
            Cause("parameters-not-in-optimizer", "Its gradient is nobody's to clear or to use."),
        ),
    ),
    Symptom(
        "training is slow",
        "slow speed slowly time gpu utilisation utilization performance throughput "
        "iterations per second",
        (
            Cause("sync-every-micro-batch", "Gradients travel between ranks once per micro-batch."),
            Cause("zero-fill", "Gradients are filled with zeros and added to instead of replaced."),
            Cause("cleared-twice", "The gradients are cleared once more than needed."),
            Cause("loss-graph-kept", "A growing graph is kept alive."),
            Cause("step-per-patch", "There is an update for each patch."),
        ),
    ),
    Symptom(
        "out of memory",
        "oom cuda memory error allocate ran runs exceeded",
        (
            Cause("loss-graph-kept", "A kept loss keeps the whole graph behind it."),
            Cause("memory-growth", "Something keeps the graph of every iteration."),
            Cause("zero-fill", "Gradients stay allocated between the updates."),
            Cause("split", "A batch that does not fit can be cut without changing its update."),
            Cause("coupled-loss-split", "Not every loss may be cut: this says which."),
        ),
    ),
    Symptom(
        "an image does not fit into memory",
        "large big huge gigapixel satellite slide volume images too patch patches tiles tiling oom "
        "fits",
        (
            Cause("patches", "It can be cut into patches that have the whole image's gradient."),
            Cause("step-per-patch", "A loop over patches that steps in each is another training."),
            Cause("split", "Several images that fit one by one are a batch to be cut."),
        ),
    ),
    Symptom(
        "seams at patch borders",
        "seam border edge boundary artifact artefact grid checkerboard tile tiles tiling stitch "
        "stitched visible lines blocky inference prediction",
        (
            Cause("patches", "Patches without a halo end where the image goes on; see stitch."),
            Cause("batchnorm", "BatchNorm in training mode has other statistics in each patch."),
        ),
    ),
    Symptom(
        "memory grows every iteration",
        "leak leaks growing increases usage ram gpu epoch step until crash",
        (
            Cause("loss-graph-kept", "A sum or list of losses keeps the graph of every iteration."),
            Cause("memory-growth", "Predictions, features or a cache keep it: watch the job."),
            Cause("kept-gradients", "Gradients that are kept are memory that is kept."),
        ),
    ),
    Symptom(
        "the loss is too large by the accumulation factor",
        "times multiplied n accumulation steps bigger larger loss x factor scale gradient "
        "proportional",
        (
            Cause("unscaled-accumulation", "The sum over the window is not divided."),
            Cause("double-normalisation", "If it is too small instead: it is divided twice."),
        ),
    ),
    Symptom(
        "accumulation gives another result than the large batch",
        "different result accumulation gradient accumulate micro batch not equal equivalent same "
        "mismatch reproduce effective batch size worse",
        (
            Cause(
                "unscaled-accumulation", "The loss is not divided by the number of micro-batches."
            ),
            Cause("mean-of-means", "Micro-batches with few tokens count as much as full ones."),
            Cause("leftover-window", "The last micro-batches of an epoch are lost, or leak."),
            Cause("off-by-one-window", "The first window has another size than the others."),
            Cause("batchnorm-in-window", "BatchNorm sees micro-batches, not the batch."),
            Cause("coupled-loss-split", "The loss compares samples that are now apart."),
            Cause("clip-inside-window", "Each micro-batch is clipped, not their sum."),
            Cause("low-precision-accumulation", "A sum in bfloat16 loses what is added to it."),
            Cause("verify", "instep.verify measures whether splitting changes your gradient."),
        ),
    ),
    Symptom(
        "NaN after an empty batch",
        "nan empty batch no targets all ignored masked zero items ignore_index padding division",
        (
            Cause("empty-window", "A mean over nothing is 0/0; a window can skip it."),
            Cause("items", "Counting items makes a batch without targets weigh nothing."),
            Cause(
                "mean-of-means", "A masked mean divides by the number of targets, which may be 0."
            ),
        ),
    ),
    Symptom(
        "NaN with mixed precision",
        "nan inf amp fp16 half autocast gradscaler scaler precision skipped steps scale underflow",
        (
            Cause("scaler-bypassed", "A plain step applies scaled, perhaps infinite gradients."),
            Cause("scaler-without-update", "The scale never goes down after an overflow."),
            Cause("unscaled-backward", "fp16 gradients underflow without the loss scale."),
            Cause("clip-before-unscale", "The clip works on scaled gradients."),
            Cause("double-unscale", "unscale_() twice in one window is an error on the GPU."),
            Cause("nonfinite-step", "An update was made with gradients that are not finite."),
            Cause("non-finite", "How windows treat gradients that are not finite."),
        ),
    ),
    Symptom(
        "the learning rate ends early",
        "lr decays too fast schedule scheduler finished zero warmup short soon quickly "
        "onecycle total_steps",
        (
            Cause("scheduler-per-micro-batch", "The scheduler counts micro-batches, not updates."),
            Cause("scheduler-before-step", "It is one ahead of the optimizer."),
            Cause("schedulers", "Schedulers count updates, and only those that were made."),
        ),
    ),
    Symptom(
        "a warning that lr_scheduler.step() comes before optimizer.step()",
        "warning scheduler order first value learning rate schedule skipped detected call",
        (
            Cause("scheduler-before-step", "The first value of the schedule is skipped."),
            Cause("scheduler-per-micro-batch", "It is stepped where no update is made yet."),
        ),
    ),
    Symptom(
        "the last batches are ignored",
        "last final remaining leftover batches dropped lost ignored never used end epoch "
        "incomplete window skipped",
        (
            Cause("leftover-window", "They never reach an update, or leak into the next epoch."),
            Cause("off-by-one-window", "A gate that opens one late leaves more of them behind."),
            Cause("leaving-early", "What becomes of a window that is left early."),
        ),
    ),
    Symptom(
        "training gets worse after evaluation",
        "evaluation validation eval makes training worse mode dropout batchnorm first epoch only",
        (Cause("train-mode-lost", "model.eval() is never undone: no dropout, frozen statistics."),),
    ),
    Symptom(
        "a part of the model stays as it was",
        "learn layer head encoder weights frozen not updated never change unchanged parameters "
        "same discriminator generator",
        (
            Cause("parameters-not-in-optimizer", "Nobody gave its parameters to an optimizer."),
            Cause("parameter-without-gradient", "It is cut off from the loss."),
            Cause("replaced-parameters", "It was replaced after the optimizer was built."),
            Cause("wrong-optimizer-cleared", "Its optimizer's gradients are cleared by the other."),
            Cause("step-without-backward", "Its optimizer steps, but no loss reaches it."),
        ),
    ),
    Symptom(
        "unscale_() has already been called",
        "runtimeerror unscale called update error scaler no inf checks recorded assertion",
        (
            Cause("double-unscale", "It may be called once per optimizer and window."),
            Cause("scaler-without-update", "Only update() begins a new window for the scaler."),
            Cause("unscaled-backward", "No gradient was scaled, so there is nothing to check."),
        ),
    ),
    Symptom(
        "a FutureWarning about torch.cuda.amp",
        "deprecated deprecation futurewarning torch.cuda.amp autocast gradscaler",
        (Cause("deprecated-cuda-amp", "torch.amp has the same, for every device."),),
    ),
    Symptom(
        "NaN in the weights",
        "nan parameters become loss turns inf infinite all outputs",
        (
            Cause("nonfinite-step", "A step used a gradient that was NaN or infinite."),
            Cause("scaler-bypassed", "Nobody looks for infinite gradients before the step."),
            Cause("empty-window", "A mean over nothing is NaN."),
        ),
    ),
    Symptom(
        "ranks train different models",
        "ddp distributed rank ranks diverge desync out of sync different weights gpus nodes "
        "checkpoint torchrun",
        (
            Cause("ranks-disagree", "Their weights or their numbers of updates are not the same."),
            Cause("sync-every-micro-batch", "no_sync belongs around all but the last backward."),
        ),
    ),
    Symptom(
        "resuming gives another result",
        "resume checkpoint saved restart load state_dict reproduce continue loss jumps after",
        (Cause("resume", "Gradients in an open window, random states and the place in the data."),),
    ),
    Symptom(
        "a GAN or several optimizers do not balance",
        "gan generator discriminator critic actor two several multiple optimizers collapse",
        (
            Cause("wrong-optimizer-cleared", "One optimizer is cleared twice, the other never."),
            Cause("several-optimizers", "Each optimizer has a window of its own."),
            Cause("scaler-without-update", "One update() after all steps of an iteration."),
        ),
    ),
)
_NOISE = re.compile(
    r"(?:a|about|after|again|all|always|an|and|are|as|at|be|by|do|does|every|for|from|gets|goes|has"
    r"|have|i|in|is|isnt|it|its|loss|me|model|my|not|of|on|or|so|than|that|the|then|there|this|to"
    r"|too|training|very|was|when|why|with|without)\Z"
)


def matching(said: str, *, most: int = 3) -> list[Symptom]:
    """Return the symptoms that are most like what somebody says, the likeliest first.

    >>> [symptom.name for symptom in matching("my loss is oscillating")]
    ['the loss oscillates']
    """
    asked = _words(said)
    if not asked:
        return []
    rated = [(_likeness(asked, symptom), symptom) for symptom in SYMPTOMS]
    best = max(score for score, _ in rated)
    if best < 0.3:
        return []
    near = [(score, symptom) for score, symptom in rated if score >= 0.75 * best]
    near.sort(key=lambda pair: -pair[0])
    return [symptom for _, symptom in near[:most]]


def _likeness(asked: list[str], symptom: Symptom) -> float:
    """Return how much of what was asked a symptom speaks of; its own name counts most."""
    name, other = _words(symptom.name), _words(symptom.words)
    scores = [max(_best(word, name) * 1.2, _best(word, other)) for word in asked]
    return sum(scores) / len(asked) + 0.1 * _covered(name, asked)


def _covered(name: list[str], asked: list[str]) -> float:
    return sum(_best(word, asked) for word in name) / max(len(name), 1)


def _best(word: str, known: list[str]) -> float:
    return max((_alike(word, other) for other in known), default=0.0)


def _alike(one: str, other: str) -> float:
    if _stem(one) == _stem(other):
        return 1.0
    short, long = sorted((one, other), key=len)
    if len(short) >= 4 and long.startswith(short[: max(4, len(short) - 3)]):
        return 0.9  # oscillation, oscillates
    ratio = SequenceMatcher(None, one, other).ratio()
    return ratio if ratio >= 0.8 and len(short) >= 4 else 0.0


def _stem(word: str) -> str:
    return re.sub(r"(?<=...)(?:ing|es|s|ed)\Z", "", word)


def _words(text: str) -> list[str]:
    found = re.findall(r"[a-z0-9_]+", text.lower().replace("'", ""))
    telling = [word for word in found if not _NOISE.match(word)]
    return telling or found
