"""Roles from names: what a class, function or variable stands for when nothing else tells."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.check.execute.values import Class

OPTIMIZER_CLASS = re.compile(
    r"^(SGD|Adam\w*|RMSprop|Adagrad|Adadelta|Adamax|ASGD|LBFGS|Rprop|NAdam|RAdam|SparseAdam|Lion"
    r"|Lamb|LAMB|LARS|LARC|Adafactor|Muon|Ranger\w*|Lookahead|SAM|SWATS|Yogi|Prodigy|Sophia\w*"
    r"|Fused(Adam|SGD|LAMB)\w*|PagedAdam\w*|\w*Adam(W)?(8bit)?|\w*Optimizer|\w*Optim|DAdapt\w*)$"
)
SCHEDULER_CLASS = re.compile(
    r"(LR|LRScheduler|Scheduler|Schedule|Plateau|Annealing\w*|WarmRestarts|Warmup\w*|NoamOpt)$"
    r"|^get_\w*schedul\w*$"
)
SCHEDULER_MODULE = re.compile(r"lr_scheduler|schedulers?\b")
CRITERION_CLASS = re.compile(r"(Loss|Criterion|CrossEntropy\w*|LossFn)$")
LOADER_CLASS = re.compile(r"(DataLoader|Loader|BucketIterator|DataLoaderLite)$")

OPTIMIZER = re.compile(r"optim|^opt(_|$|\d|[A-Z]|[gdGD]$)|_opt$|_opt_|^solver|^sgd$|^adam$")
SCHEDULER = re.compile(r"sched|lr_decay|warmup|^lr_s|plateau|annealing", re.IGNORECASE)
SCALER = re.compile(r"scaler|^amp_scale", re.IGNORECASE)
CRITERION = re.compile(
    r"criteri|loss_?f|loss_?func|lossfn|^loss$|^loss_?\w{0,6}$|_loss$|^crit|objective|_criterion",
    re.IGNORECASE,
)
MODEL = re.compile(
    r"model|net(_|$|work|\d|[A-Z])|^net|^[GD]$|encoder|decoder|generator|discriminator|critic"
    r"|actor|policy|backbone|classifier|unet|vae|student|teacher|module$|transformer|^gen$|^disc$"
    r"|segmenter|detector|projector|predictor|bert|gpt|resnet|mlp|^head$|^agent$",
    re.IGNORECASE,
)
LOADER = re.compile(
    r"loader|dataloader|data_?iter|(^|_)dl$|batches|iterator|train_(iter|data|set|ds|gen)|^data$"
    r"|dataset|generator$|^train$|sampler|minibatch(es)?$|_iter$|^trn",
    re.IGNORECASE,
)
NOT_OPTIMIZER = re.compile(
    r"env|prof|ema|game|sim|world|robot|pbar|bar$|progress|timer|meter|logger|wandb|clock|trainer"
    r"|diffusion|sampler|mcts|buffer|stepper|annealer|beta_|temperature|writer|physics",
    re.IGNORECASE,
)
PATCHES = re.compile(r"patch|tile|crop|window|strip|block|slab", re.IGNORECASE)
BENIGN = re.compile(
    r"save|log|print|write|ckpt|checkpoint|metric|meter|gather|reduce|isnan|isinf|isfinite|stat"
    r"|record|scalar|report|get_|lr|learning_rate|ema|load|resume|restore|dump|str|repr|len|type"
    r"|isinstance|hasattr|getattr|setattr|id|format|summary|count|wandb|mlflow|append|update_"
    r"|broadcast|hook|attach|register|deepcopy|state_dict|warn|info|debug|display|plot|show"
    r"|initialize|amp|prepare|setup|wrap|float|item|backup|schedul|warmup|adjust|decay|freeze",
    re.IGNORECASE,
)
"""Functions that may be given an optimizer without doing anything to its gradients."""
ACTS = re.compile(r"backward|optimi[sz]|step|train|update|fit|clip|apply|scaler|accum|closure|grad")
"""Functions that may do something to a loss that they are given."""
COUPLED = re.compile(r"info_?nce|nt_?xent|contrast|simclr|clip_?loss|sup_?con|siglip|mnrl", re.I)
_MODULE = re.compile(
    r"(^|\.)(\w*Module|PreTrainedModel|ModuleList|Sequential|ModelMixin|\w*PreTrainedModel"
    r"|MessagePassing|\w*Model|\w*Net|Policy|BaseModel)$"
)
_BATCHNORM = re.compile(r"\b(BatchNorm[123]d|SyncBatchNorm|BatchNorm)\b")
BATCHNORM_MODELS = re.compile(
    r"^(wide_)?res(net|next)\w*$|^densenet\w*|^mobilenet\w*|^vgg\w*_bn$|^inception\w*|^googlenet"
    r"|^shufflenet\w*|^mnasnet\w*|^regnet\w*|^efficientnet\w*"
)


TRAINABLE = re.compile(
    r"^(Linear|Bilinear|LazyLinear|Conv\w*|Embedding\w*|LSTM\w*|GRU\w*|RNN\w*|Transformer\w*"
    r"|MultiheadAttention|Parameter|ParameterList|\w*Norm\w*|PReLU)$"
)
"""Layers of torch that have parameters."""
_LAYERS = re.compile(
    r"\b(Linear|Conv[123]d|ConvTranspose[123]d|Embedding|LSTM|GRU|RNN|Transformer\w*|Parameter"
    r"|MultiheadAttention|resnet\w*|from_pretrained)\("
)


def has_parameters(cls: Class) -> bool | None:
    """Say whether a model's class makes layers that have parameters; None if that is not seen."""
    lines = cls.scope.module.unit.text.split("\n")
    text = "\n".join(lines[cls.code.lineno - 1 : cls.code.end_lineno])
    return True if _LAYERS.search(text) else None


def is_module_base(name: str) -> bool:
    """Say whether a base class outside the project makes its subclasses models.

    >>> is_module_base("torch.nn.Module"), is_module_base("object")
    (True, False)
    """
    if name.endswith(("pydantic.BaseModel", "Dataset", "DataModule")):
        return False
    return _MODULE.search(name) is not None


def has_batchnorm(cls: Class) -> bool | None:
    """Say whether a model's class, or a class it is written beside, uses batch normalisation."""
    module = cls.scope.module
    if not _BATCHNORM.search(module.unit.text):
        return None
    lines = module.unit.text.split("\n")

    def text(node: ast.stmt) -> str:
        return "\n".join(lines[node.lineno - 1 : node.end_lineno])

    own = text(cls.code)
    if _BATCHNORM.search(own):
        return True
    for node in module.tree.body:
        beside = isinstance(node, ast.FunctionDef | ast.ClassDef) and node is not cls.code
        if beside and re.search(rf"\b{node.name}\(", own) and _BATCHNORM.search(text(node)):
            return True
    return None


def last(name: str | None) -> str:
    """Return the last part of a dotted name.

    >>> last("self.optimizer")
    'optimizer'
    """
    return (name or "").rpartition(".")[2]
