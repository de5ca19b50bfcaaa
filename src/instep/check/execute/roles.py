"""Roles from names: what a class, function or variable stands for when nothing else tells."""

from __future__ import annotations

import re

from instep.trace.pattern import pattern

_MOST = 4096


class Names:
    """The names that fit a pattern. What it said of a name is remembered: the same come again and
    again.

    >>> "train_loader" in LOADER, "patches" in LOADER
    (True, False)
    """

    def __init__(self, names: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self._names, self._flags = names, flags
        self._words: list[str] | None = None  # with "^" and "$" around those that have them
        self._others: re.Pattern[str] | None = None
        self._said: dict[str, bool] = {}

    def __contains__(self, name: str) -> bool:
        found = self._said.get(name)
        if found is None:
            if len(self._said) >= _MOST:
                self._said.clear()
            found = self._said[name] = self._fits(name)
        return found

    def _fits(self, name: str) -> bool:
        """Look for the words first: to compile them takes longer than to look for them."""
        if self._words is None:
            words, others = _split(self._names)
            self._words = [w.lower() for w in words] if self._flags else words
            self._others = pattern("|".join(others), self._flags) if others else None
        bounded = f"^{name.lower() if self._flags else name}$"
        if any(word in bounded for word in self._words):
            return True
        return self._others is not None and self._others.search(name) is not None


def _split(names: str) -> tuple[list[str], list[str]]:
    """Split the alternatives of a pattern into words and others.

    >>> _split("scaler|^amp_scale|net(_|$)|bar$")
    (['scaler', '^amp_scale', 'bar$'], ['net(_|$)'])
    """
    words: list[str] = []
    others: list[str] = []
    part, depth = "", 0
    for piece in names.split("|"):
        part = f"{part}|{piece}" if depth else piece
        depth += piece.count("(") - piece.count(")")
        if not depth:
            is_word = part.removeprefix("^").removesuffix("$").isidentifier()
            (words if is_word else others).append(part)
    return words, others


OPTIMIZER_CLASS = Names(
    r"^(SGD|Adam\w*|RMSprop|Adagrad|Adadelta|Adamax|ASGD|LBFGS|Rprop|NAdam|RAdam|SparseAdam|Lion"
    r"|Lamb|LAMB|LARS|LARC|Adafactor|Muon|Ranger\w*|Lookahead|SAM|SWATS|Yogi|Prodigy|Sophia\w*"
    r"|Fused(Adam|SGD|LAMB)\w*|PagedAdam\w*|\w*Adam(W)?(8bit)?|\w*Optimizer|\w*Optim|DAdapt\w*)$"
)
SCHEDULER_CLASS = Names(
    r"(LR|LRScheduler|Scheduler|Schedule|Plateau|Annealing\w*|WarmRestarts|Warmup\w*|NoamOpt)$"
    r"|^get_\w*schedul\w*$"
)
SCHEDULER_MODULE = Names(r"lr_scheduler|schedulers?\b")
CRITERION_CLASS = Names(r"(Loss|Criterion|CrossEntropy\w*|LossFn)$")
LOADER_CLASS = Names(r"(DataLoader|Loader|BucketIterator|DataLoaderLite)$")

OPTIMIZER = Names(r"optim|^opt(_|$|\d|[A-Z]|[gdGD]$)|_opt$|_opt_|^solver|^sgd$|^adam$")
SCHEDULER = Names(r"sched|lr_decay|warmup|^lr_s|plateau|annealing", re.IGNORECASE)
SCALER = Names(r"scaler|^amp_scale", re.IGNORECASE)
CRITERION = Names(
    r"criteri|loss_?f|loss_?func|lossfn|^loss$|^loss_?\w{0,6}$|_loss$|^crit|objective|_criterion",
    re.IGNORECASE,
)
MODEL = Names(
    r"model|net(_|$|work|\d|[A-Z])|^net|^[GD]$|encoder|decoder|generator|discriminator|critic"
    r"|actor|policy|backbone|classifier|unet|vae|student|teacher|module$|transformer|^gen$|^disc$"
    r"|gan$|segmenter|detector|projector|predictor|bert|gpt|resnet|mlp|^head$|^agent$",
    re.IGNORECASE,
)
LOADER = Names(
    r"loader|dataloader|data_?iter|(^|_)dl(_|$)|batches|iterator|train_(iter|data|set|ds|gen)|^data$"
    r"|dataset|generator$|^train$|sampler|minibatch(es)?$|_iter$|^trn",
    re.IGNORECASE,
)
NOT_OPTIMIZER = Names(
    r"env|prof|ema|game|sim|world|robot|pbar|bar$|progress|timer|meter|logger|wandb|clock|trainer"
    r"|diffusion|sampler|mcts|buffer|stepper|annealer|beta_|temperature|writer|physics",
    re.IGNORECASE,
)
PATCHES = Names(r"patch|tile|crop|window|strip|block|slab", re.IGNORECASE)
BENIGN = Names(
    r"save|log|print|write|ckpt|checkpoint|metric|meter|gather|reduce|isnan|isinf|isfinite|stat"
    r"|record|scalar|report|get_|lr|learning_rate|ema|load|resume|restore|dump|str|repr|len|type"
    r"|isinstance|hasattr|getattr|setattr|id|format|summary|count|wandb|mlflow|append|update_"
    r"|broadcast|deepcopy|state_dict|warn|info|debug|display|plot|show"
    r"|amp|float|item|backup|schedul|warmup|adjust|decay|freeze",
    re.IGNORECASE,
)
"""Functions that may be given an optimizer without doing anything to its gradients."""
NUMBERS = Names(r"(^|_)(item|detach|to_?(numpy|np|scalar|float|python))$", re.IGNORECASE)
"""Functions that make a number of a loss, or leave one that is none as it is."""
WRAPS = Names(r"wrap|optimi[sz]er$|prepare_opt", re.IGNORECASE)
"""Functions that give an optimizer back in another form."""
CLEARS = Names(r"zero|clear_?grad|reset_?grad|clean_?grad", re.IGNORECASE)
"""Functions that may clear gradients, whatever they are given."""
ACTS = Names(r"backward|optimi[sz]|step|train|update|fit|clip|apply|scaler|accum|closure|grad")
"""Functions that may do something to a loss that they are given."""
COUPLED = Names(
    r"info_?nce|nt_?xent|contrast|simclr|clip_?loss|sup_?con|siglip|mnrl", re.IGNORECASE
)
_MODULE = Names(
    r"(^|\.)(\w*Module|PreTrainedModel|ModuleList|Sequential|ModelMixin|\w*PreTrainedModel"
    r"|MessagePassing|\w*Model|\w*Net|Policy|BaseModel)$"
)
BATCHNORM_MODELS = Names(
    r"^(wide_)?res(net|next)\w*$|^densenet\w*|^mobilenet\w*|^vgg\w*_bn$|^inception\w*|^googlenet"
    r"|^shufflenet\w*|^mnasnet\w*|^regnet\w*|^efficientnet\w*"
)
TRAINABLE = Names(
    r"^(Linear|Bilinear|LazyLinear|Conv\w*|Embedding\w*|LSTM\w*|GRU\w*|RNN\w*|Transformer\w*"
    r"|MultiheadAttention|Parameter|ParameterList|(?!Instance|LocalResponse)\w*Norm\w*|PReLU)$"
)
"""Layers of torch that have parameters; InstanceNorm has none unless it is asked for them."""
NO_GRAD = frozenset({"no_grad", "inference_mode"})
"""Contexts and decorators under which no graph is made."""


def is_module_base(name: str) -> bool:
    """Say whether a base class outside the project makes its subclasses models.

    >>> is_module_base("torch.nn.Module"), is_module_base("object")
    (True, False)
    """
    if name.endswith(("pydantic.BaseModel", "Dataset", "DataModule")):
        return False
    return name in _MODULE


def last(name: str | None) -> str:
    """Return the last part of a dotted name.

    >>> last("self.optimizer")
    'optimizer'
    """
    return (name or "").rpartition(".")[2]
