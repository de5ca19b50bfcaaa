"""Which function executes what: the one place where syntax, builtins, torch and roles meet."""

from __future__ import annotations

import ast

from instep.check.execute import (
    accelerate,
    branches,
    builtin_calls,
    calls,
    comprehensions,
    constructors,
    containers,
    contexts,
    deepspeed,
    defining,
    expressions,
    grads,
    imports,
    loops,
    machine,
    methods,
    models,
    objects,
    optimizers,
    outside,
    scalers,
    statements,
    subscripts,
    tensor_methods,
    torch_calls,
)
from instep.check.execute.definitions import Super
from instep.check.execute.tensors import Tensor
from instep.check.execute.things import (
    Accelerator,
    Criterion,
    Grad,
    Net,
    Optimizer,
    Param,
    Scaler,
    Scheduler,
)
from instep.check.execute.values import DictValue, Iterator, ListValue, Native, Ref, Thing

_EVALUATE: dict[type[ast.AST], machine.Evaluate] = {
    ast.Attribute: expressions.attribute,
    ast.Await: expressions.wrapped,
    ast.BinOp: expressions.binary,
    ast.BoolOp: expressions.boolean,
    ast.Call: calls.evaluate,
    ast.Compare: expressions.compare,
    ast.Constant: expressions.constant,
    ast.Dict: expressions.dict_,
    ast.DictComp: comprehensions.mapped,
    ast.GeneratorExp: comprehensions.listed,
    ast.IfExp: expressions.choice,
    ast.JoinedStr: expressions.text,
    ast.Lambda: expressions.lambda_,
    ast.List: expressions.list_,
    ast.ListComp: comprehensions.listed,
    ast.Name: expressions.name,
    ast.NamedExpr: expressions.walrus,
    ast.Set: expressions.list_,
    ast.SetComp: comprehensions.listed,
    ast.Slice: subscripts.slice_,
    ast.Starred: expressions.wrapped,
    ast.Subscript: subscripts.subscript,
    ast.Tuple: expressions.tuple_,
    ast.UnaryOp: expressions.unary,
}
_EXECUTE: dict[type[ast.AST], machine.Execute] = {
    ast.AnnAssign: statements.annotated,
    ast.Assign: statements.assign,
    ast.AsyncFor: loops.for_,
    ast.AsyncFunctionDef: defining.function,
    ast.AsyncWith: statements.with_,
    ast.AugAssign: statements.augmented,
    ast.Break: branches.break_,
    ast.ClassDef: defining.class_,
    ast.Continue: branches.continue_,
    ast.Delete: statements.delete,
    ast.Expr: statements.expression,
    ast.For: loops.for_,
    ast.FunctionDef: defining.function,
    ast.Global: statements.global_,
    ast.If: branches.if_,
    ast.Import: imports.import_,
    ast.ImportFrom: imports.import_from,
    ast.Match: branches.match_,
    ast.Nonlocal: statements.nonlocal_,
    ast.Raise: branches.raise_,
    ast.Return: branches.return_,
    ast.Try: branches.try_,
    ast.TryStar: branches.try_,
    ast.While: loops.while_,
    ast.With: statements.with_,
}
_METHODS: dict[type[Thing], methods.Handler] = {
    Accelerator: accelerate.method,
    Criterion: methods.of_criterion,
    DictValue: containers.of_dict,
    Grad: grads.method,
    Iterator: containers.of_iterator,
    ListValue: containers.of_list,
    Net: models.method,
    Optimizer: optimizers.method,
    Param: methods.of_parameter,
    Scaler: optimizers.of_scaler,
    Scheduler: optimizers.of_scheduler,
    Super: methods.of_super,
    Tensor: tensor_methods.method,
}
_BUILTINS = {
    "bool": builtin_calls.bool_,
    "enumerate": builtin_calls.enumerate_,
    "eval": builtin_calls.source_text,
    "exec": builtin_calls.source_text,
    "filter": builtin_calls.filter_,
    "float": builtin_calls.float_,
    "getattr": builtin_calls.getattr_,
    "hasattr": builtin_calls.hasattr_,
    "int": builtin_calls.int_,
    "iter": builtin_calls.iter_,
    "len": builtin_calls.len_,
    "list": builtin_calls.listed,
    "map": builtin_calls.map_,
    "max": builtin_calls.extreme,
    "min": builtin_calls.extreme,
    "next": builtin_calls.next_,
    "range": builtin_calls.range_,
    "reversed": builtin_calls.same,
    "round": builtin_calls.float_,
    "set": builtin_calls.listed,
    "setattr": builtin_calls.setattr_,
    "sorted": builtin_calls.listed,
    "sum": builtin_calls.sum_,
    "super": objects.super_,
    "tuple": builtin_calls.listed,
    "zip": builtin_calls.zip_,
}
_NAMED = ("print", "isinstance", "str", "repr", "abs", "type", "dict", "open", "any", "all")
"""Builtins that are no more than their name."""
_CALLS = {
    accelerate.accelerator: ("Accelerator",),
    accelerate.fabric: ("Fabric",),
    builtin_calls.cycle: ("cycle",),
    builtin_calls.islice: ("islice",),
    builtin_calls.partial: ("partial",),
    builtin_calls.range_: ("trange",),
    builtin_calls.same: ("tqdm", "track", "ProgressBar", "progress_bar", "tqdm_notebook"),
    constructors.copied: ("deepcopy", "AveragedModel", "ModelEma", "ModelEmaV2"),
    constructors.leaf: ("tensor", "zeros", "ones", "randn", "rand", "full", "zeros_like",
                        "ones_like", "randn_like", "rand_like", "empty"),
    constructors.parameter: ("Parameter",),
    constructors.wrapped: ("DistributedDataParallel", "DDP", "DataParallel",
                           "FullyShardedDataParallel", "FSDP"),
    contexts.enable_grad: ("enable_grad",),
    contexts.exit_stack: ("ExitStack",),
    contexts.plain: ("autocast", "autocast_mode", "nullcontext", "suppress", "profile", "device",
                     "record_function", "detect_anomaly", "set_detect_anomaly", "stream", "Timer",
                     "redirect_stdout", "catch_warnings"),
    contexts.same_or_plain: ("compile", "convert_sync_batchnorm", "script", "trace", "fsdp_shard",
                             "freeze"),
    contexts.set_grad_enabled: ("set_grad_enabled",),
    contexts.without_grad: ("no_grad", "inference_mode"),
    deepspeed.initialize: ("initialize_deepspeed",),
    optimizers.of_function: ("optimizer_step",),
    optimizers.scaler: ("GradScaler", "ShardedGradScaler"),
    scalers.scale_loss: ("scale_loss",),
    torch_calls.backward_of: ("backward",),
    torch_calls.chain: ("chain",),
    torch_calls.clip: ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grad_value"),
    torch_calls.gradients: ("grad",),
    torch_calls.initialize: ("initialize",),
    torch_calls.join: ("stack", "cat", "concat", "concatenate", "hstack", "vstack"),
    torch_calls.master_params: ("master_params",),
    torch_calls.nothing: ("arange", "Generator", "manual_seed", "is_available", "isnan", "isfinite",
                          "isinf", "all_reduce", "barrier", "save", "load"),
    torch_calls.parametrize: ("weight_norm", "spectral_norm", "remove_weight_norm",
                              "remove_spectral_norm", "register_parametrization", "orthogonal",
                              "remove_parametrizations"),
    torch_calls.reduce: ("mean", "sum", "div", "mul", "add", "matmul", "mm", "bmm"),
}  # fmt: skip


def install() -> None:
    """Fill the tables that execution reads."""
    machine.EVALUATE.update(dict.fromkeys(ast.expr.__subclasses__(), expressions.unknown))
    machine.EVALUATE.update(_EVALUATE)
    machine.EXECUTE.update(dict.fromkeys(ast.stmt.__subclasses__(), statements.nothing))
    machine.EXECUTE.update(_EXECUTE)
    machine.BUILTINS["__name__"] = "__main__"
    machine.BUILTINS.update({name: Native(handler) for name, handler in _BUILTINS.items()})
    machine.BUILTINS.update({name: Ref(f"builtins.{name}") for name in _NAMED})
    methods.METHODS.update(_METHODS)
    outside.CALLS.update({name: call for call, names in _CALLS.items() for name in names})
