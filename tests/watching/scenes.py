"""What each loop needs to run, by the name of its file; and which loops cannot run here."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from tests.watching.props import (
    WIDTH,
    Actor,
    Anything,
    Detector,
    Judged,
    Net,
    Padded,
    Pictured,
    Recurrent,
    Score,
    World,
    classes,
    endless,
    ids,
    loader,
    numbers,
)
from tests.watching.stage import Scene

CANNOT_RUN = {
    "not_ins101_clear_grad": "paddle is not installed",
    "not_ins101_other_framework": "mxnet is not installed",
    "not_ins101_gluon_look_alike": "mxnet is not installed",
    "not_ins101_dist_autograd": "needs a second process behind RPC",
    "not_ins101_distributed_autograd": "needs a second process behind RPC",
    "not_ins202_engine_counts": "deepspeed is not installed",
    "not_ins202_deepspeed": "deepspeed is not installed",
    "not_ins305_apex": "apex is not installed",
    "not_ins401_torch_before_0_5": "`loss.data[0]` is an error since torch 0.5",
    "not_ins401_epoch_argument": "timm is not installed",
    # Those of the frameworks run with the packages that we compare with: tests/peers.
    "not_ins101_lightning_optimizers": "lightning is not installed",
    "not_ins302_lightning_manual": "lightning is not installed",
    "not_ins302_fabric_clips": "lightning is not installed",
    "not_ins201_accumulate_context": "accelerate is not installed",
    "not_ins201_accelerate": "accelerate is not installed",
    "not_ins205_accumulate_division_only_for_the_log": "accelerate is not installed",
    "not_ins402_prepared_scheduler": "accelerate is not installed",
    "not_ins402_accelerate_scheduler": "accelerate is not installed",
}


def regression():
    return loader(numbers(), numbers())


def wide():
    """Give images that are cut along their last side."""
    return loader(numbers(3, 512), numbers(3, 512))


def large():
    """Give batches that are cut into pieces, the last of them smaller."""
    return loader(numbers(), numbers(), size=13 * 120, batch=120)


def labelled():
    return loader(numbers(), classes, size=13 * 56, batch=56)


def alone():
    return loader(numbers())


def padded(padding):
    return lambda: loader(ids(6), Padded(6, padding))


def windows():
    return endless_windows(loader(ids(6), Padded(6, -100)), lambda x, y: (x, y))


def dictionaries():
    return endless_windows(
        loader(ids(6), Padded(6, -100)), lambda x, y: {"input_ids": x, "labels": y}
    )


def endless_windows(batches, made):
    stream = endless(batches)
    return [[made(*next(stream)) for _ in range(4)] for _ in range(10)]


def images():
    return loader(numbers(3, WIDTH), ids(3))


class Wide(Net):
    """From 784 numbers to 784 and back would be too many; from any number to as many."""


def scenes(call="", **names):
    return Scene(call, names)


def saved():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    return {
        "model": net.state_dict(), "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(), "epoch": 0,
    }  # fmt: skip


class Colours(nn.Module):
    """A stem that is frozen, and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.head(self.stem(x))


class Segments(Net):
    """An output and two auxiliary ones."""

    def forward(self, x):
        out, *aux = super().forward(x)
        return {"out": out, "aux": aux}


class Replay:
    """A buffer of what an agent has seen."""

    def sample(self, size):
        state = torch.randn(size, WIDTH)
        return state, state, state, torch.randn(size), torch.ones(size)


SCENES = {
    # The rules' own examples
    "INS103": scenes(loader=wide),
    "INS105": scenes(loader=regression),
    "INS203": scenes(loader=lambda: loader(numbers(), lambda: torch.randint(0, 3, ()))),
    "INS207": scenes(loader=regression),
    "INS502": scenes(loader=lambda: loader(numbers(784))),
    # The first set
    "not_ins101_adversarial_example": scenes("robust_accuracy(classifier, loader)"),
    "not_ins101_before_the_loop_and_after_the_gate": scenes(
        sample=lambda: lambda n, length: torch.randint(0, WIDTH, (n, length // 64))
    ),
    "not_ins101_by_hand": scenes(
        points=lambda: torch.randn(20, 3), heights=lambda: torch.randn(20)
    ),
    "not_ins101_cleared_by_a_library": scenes(),
    "not_ins101_cleared_last": scenes("fit(net, loader)"),
    "not_ins101_cleared_on_the_line_before_backward": scenes(
        model=lambda: Net(heads=2), faces=lambda: loader(numbers(), numbers(), classes)
    ),
    "not_ins101_comprehension_over_optimizers": scenes(build=lambda: lambda width: Net()),
    "not_ins101_groups_set_to_none": scenes("train(policy, loader)"),
    "not_ins101_module_of_a_base_class": scenes("Ranker(model).train(loader)"),
    "not_ins101_split_over_methods": scenes("Regression(net).fit(loader)"),
    "not_ins101_style_transfer_closure": scenes(
        content=lambda: torch.randn(WIDTH),
        style=lambda: torch.randn(WIDTH),
        style_distance=lambda: nn.functional.mse_loss,
        content_distance=lambda: nn.functional.mse_loss,
    ),
    "not_ins102_counter_elsewhere": scenes(
        "train(model, loader, state)", state=lambda: SimpleNamespace(n=0)
    ),
    "not_ins102_out_of_memory": scenes("train(model, optimizer, loader)"),
    "not_ins102_spike_guard": scenes("for _ in range(3): train(model, loader, limit)", limit=1.5),
    "not_ins103_truncated_backpropagation": scenes(
        rnn=Recurrent, corpus=lambda: torch.randint(0, WIDTH, (35 * 20, 4))
    ),
    "not_ins103_truncated_in_strides": scenes(
        "train(rnn, loader, criterion, 5)",
        rnn=Recurrent,
        loader=lambda: loader(numbers(20, WIDTH), numbers(20, WIDTH)),
    ),
    "not_ins104_environment_and_profiler": scenes(
        "play(env, agent, prof, 20)", env=World, prof=Anything
    ),
    "not_ins104_gradients_assigned": scenes(),
    "not_ins104_loss_scaler_call": scenes("train_one_epoch(model, criterion, loader, optimizer, 1.0)"),
    "not_ins104_sharpness_aware": scenes(),
    "not_ins104_steps_are_timed": scenes(batch=lambda: torch.randn(4, WIDTH)),
    "not_ins105_gan_with_penalty": scenes(
        "opts = [torch.optim.SGD(part.parameters()) for part in (gen, critic)]\n"
        "train(gen, critic, loader, *opts)",
        loader=lambda: loader(numbers(1, 4, WIDTH)),
        gen=lambda: Images(),
    ),
    "not_ins106_each_its_own": scenes(
        actor=Actor, critic=Score, batches=lambda: loader(numbers(), numbers(), numbers())
    ),
    "not_ins201_cells": scenes(),
    "not_ins201_checkpoint_every_n": scenes(ema=Anything),
    "not_ins201_critic_steps": scenes(loader=alone),
    "not_ins201_gradients_averaged": scenes(
        "train(model, windows)",
        windows=lambda: endless_windows(loader(), lambda x, y: (x, y)),
    ),
    "not_ins201_losses_of_two_tasks": scenes(
        model=lambda: Net(heads=2), scenes=lambda: loader(numbers(), numbers(), numbers())
    ),
    "not_ins201_sum_over_one_count": scenes(loader=labelled),
    "not_ins202_flushed_after_the_loop": scenes(
        "trainer = Trainer(model, 4)\nfor _ in range(3): trainer.epoch(loader)"
    ),
    "not_ins202_global_step": scenes("fit(net, loader, epochs)"),
    "not_ins202_last_batch_closes": scenes(
        "for _ in range(3): train_epoch(model, optimizer, loader, 4)"
    ),
    "not_ins202_need_update_flag": scenes(
        "for _ in range(3): train_epoch(model, loader, optimizer, Settings())",
        model=Judged,
        loader=loader,
    ),
    "not_ins203_share_of_each_piece": scenes(loader=large),
    "not_ins203_tokens_of_the_window": scenes(
        "for window in windows: update(model, optimizer, window)", windows=windows
    ),
    "not_ins204_countdown": scenes("train(net, loader, epochs)"),
    "not_ins205_weight_and_window": scenes(
        net=lambda: Net(heads=2), stream=lambda: endless(loader(numbers(), classes, classes))
    ),
    "not_ins206_batchnorm_without_windows": scenes(loader=lambda: loader(numbers(20), two)),
    "not_ins207_whole_batch": scenes(
        pairs=lambda: loader(numbers(), numbers(), size=13 * 128, batch=128)
    ),
    "not_ins301_two_backwards_two_clips": scenes(
        "opts = [torch.optim.SGD(part.parameters()) for part in (actor, critic)]\n"
        "for batch in batches: update(actor, critic, *opts, *batch)",
        actor=Actor,
        critic=Score,
        batches=lambda: loader(numbers(), numbers(), numbers(())),
    ),
    "not_ins302_norm_logged_before_step": scenes(
        model=lambda: Returned(), log=Anything
    ),
    "not_ins302_weights_clamped": scenes(pairs=regression),
    "not_ins303_flag_in_a_class": scenes("Trainer(net, True).fit(loader)"),
    "not_ins303_scaler_or_not": scenes(
        "train_epoch(model, loader, optimizer, torch.amp.GradScaler('cpu'))\n"
        "train_epoch(model, loader, optimizer)"
    ),
    "not_ins304_one_update_after_both_steps": scenes(loader=alone),
    "not_ins401_after_both_loops": scenes(evaluate=Anything),
    "not_ins401_one_list_after_the_other": scenes(loader=alone),
    "not_ins401_plateau_and_early_stop": scenes(
        "fit(model, loader, valid)", validate=lambda: lambda model, valid: 1.0
    ),
    "not_ins401_resumed": Scene("train(model, loader, 'x', 3)", saved=saved),
    "not_ins401_wrapper_steps_both": scenes("train(model, loader)"),
    "not_ins402_every_batch_is_an_update": scenes(
        loader=alone, add_noise=lambda: lambda images, noise, t: images + noise, ema=Anything
    ),
    "not_ins402_patches_then_scheduler": scenes(loader=wide),
    "not_ins501_asks_first": scenes("train(model, loader)"),
    "not_ins501_saliency": scenes(
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * WIDTH, 10)),
        samples=lambda: [(torch.randn(3, WIDTH), 1) for _ in range(10)],
        show=Anything,
    ),
    "not_ins502_chain": scenes(
        Encoder=lambda: lambda: nn.Linear(WIDTH, 64), Decoder=lambda: lambda: nn.Linear(64, WIDTH)
    ),
    "not_ins502_ema_target": scenes(
        QNet=lambda: Net,
        batches=lambda: loader(numbers(), ids(1), numbers(()), numbers()),
    ),
    "not_ins502_frozen_above": scenes("train(loader)", loader=lambda: loader(numbers(), numbers(1))),
    "not_ins502_parameters_by_name": scenes(
        Transformer=lambda: Net, loader=lambda: loader(ids(6), ids(6))
    ),
    "not_ins502_teacher_without_grad": scenes(
        load_teacher=lambda: lambda path: Net(), SmallNet=lambda: Net, loader=alone
    ),
    "not_ins503_group_added": scenes(loader=lambda: loader(numbers(10), five)),
    "not_ins503_moved_wrapped_compiled": scenes(ResNet=lambda: Net),
    "not_ins503_optimizer_rebuilt": scenes(
        "Lifelong(trunk).learn([(loader, 8), (valid, 8)])",
        trunk=lambda: nn.Linear(WIDTH, 256),
        loader=loader,
    ),
    "not_ins503_weights_loaded": Scene(names={"build_model": lambda: Net}, saved=lambda: Net().state_dict()),
    "not_ins601_detached": scenes(),
    "not_ins601_list_goes_backward": scenes(
        "train(net, loader)",
        net=lambda: Net(heads=3),
        loader=lambda: [(x, [x, x, x]) for x in alone()],
    ),
    "not_ins601_regularised": scenes(net=lambda: Net(heads=2)),
    "not_ins601_sum_is_the_loss": scenes(
        cell=Recurrent, sequences=lambda: [torch.randn(6, WIDTH) for _ in range(20)]
    ),
    "not_ins601_validation_sum": scenes("fit(model, loader, valid, epochs)"),
    "not_ins603_forward_inside_is_enough": scenes("train(net, stream, updates)"),
    "not_ins603_no_sync_until_the_last": scenes(Net=lambda: Net),
    "not_ins604_evaluate_puts_it_back": scenes("train(model, loader, valid)"),
    "not_ins604_frozen_teacher": scenes(loader=alone),
    "not_ins604_helper_sets_the_mode": scenes(
        "run(model, sampler, loader, valid, epochs)", sampler=Anything, report=Anything
    ),
    # The second set
    "not_ins101_after_step_and_before_loop": scenes("main(model, stream)"),
    "not_ins101_base_class_clears": scenes("main(net, loader)"),
    "not_ins101_between_forward_and_backward": scenes(
        train_loader=lambda: loader(numbers(1, 28, 28), classes)
    ),
    "not_ins101_grad_none_loop": scenes("fit(model, loader)\nfit_by_module(net, loader)"),
    "not_ins101_lbfgs_closure": scenes(
        "style_transfer(image, content, style, features, 30)\n"
        "Fit(net, *next(iter(loader))).run(5)",
        image=lambda: torch.randn(4, WIDTH),
        content=lambda: lambda x: x.pow(2).mean(),
        style=lambda: lambda x: 1e-6 * x.pow(2).mean(),
        features=lambda: lambda x: x,
    ),
    "not_ins101_manual_sgd": scenes(
        "fgsm(model, features[:, :8], labels[:, 0].long(), 0.1)",
        features=lambda: torch.randn(20, 10),
        labels=lambda: torch.ones(20, 1),
    ),
    "not_ins101_reset_grad_helper": scenes(
        "StarSolver({'discriminator': net, 'generator': model}).train(loader, 12)"
    ),
    "not_ins102_nan_guard": scenes("train(model, loader, optimizer, criterion)"),
    "not_ins103_patches_are_the_samples": scenes(
        "main(loader.dataset, net)", loader=lambda: loader(numbers(), numbers(), size=420)
    ),
    "not_ins104_environment_steps": scenes(
        "run(env, Policy(), ema, profiler, 20)", env=World, ema=Anything, profiler=Anything
    ),
    "not_ins104_timm_loss_scaler": scenes(
        "main(args, model, criterion, loader)",
        args=lambda: SimpleNamespace(lr=0.1, epochs=3),
        loader=loader,
    ),
    "not_ins105_dcgan": scenes(
        make_generator=lambda: lambda: nn.ConvTranspose2d(100, 3, 4),
        make_discriminator=lambda: lambda: nn.Sequential(nn.Conv2d(3, 1, 4), nn.Sigmoid()),
        dataloader=lambda: loader(numbers(3, 4, 4), classes),
    ),
    "not_ins201_gradients_divided_by_tokens": scenes(
        "train(model, feed, updates)", loader=padded(-100)
    ),
    "not_ins201_lazy_regularisation": scenes(
        "train_d(model, reals, fakes, 36)",
        reals=lambda: endless(alone()),
        fakes=lambda: endless(alone()),
        model=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)),
    ),
    "not_ins201_one_backward_per_head": scenes(
        "train(trunk, heads, loader, weights)",
        heads=lambda: {"one": Net(), "two": Net(), "three": Net()},
        weights=lambda: {"one": 1.0, "two": 0.5, "three": 2.0},
        loader=lambda: [{"image": x, "one": y, "two": y, "three": y} for x, y in loader()],
    ),
    "not_ins201_policy_frequency": scenes(
        "main((actor, critic), buffer, 30)", critic=Score, buffer=Replay
    ),
    "not_ins202_counter_over_epochs": scenes("Job(net).fit(loader, epochs)"),
    "not_ins202_flush_with_its_own_divisor": scenes("train(model, loader, loss_fn, epochs)"),
    "not_ins203_one_denominator": scenes("SFT(model).train(windows)", windows=dictionaries),
    "not_ins203_share_of_the_batch": scenes(
        "train(net, loader)", loader=lambda: loader(numbers(), numbers(), size=13 * 56, batch=56)
    ),
    "not_ins204_enumerate_from_one": scenes(),
    "not_ins207_two_pass": scenes(
        "train(encoder, loader)", loader=lambda: loader(numbers(), size=13 * 256, batch=256)
    ),
    "not_ins301_clip_at_the_close": scenes("train(model, feed, loss_fn, 9)"),
    "not_ins302_wgan_weight_clipping": scenes(
        Critic=lambda: Net, Generator=lambda: lambda: nn.Linear(64, WIDTH), real_batches=alone
    ),
    "not_ins303_accumulation_with_amp": scenes("train(model, feed, loss_fn, updates)"),
    "not_ins303_both_paths": scenes(
        "train(model, loader, criterion, amp=True, clip=1.0)\n"
        "train(net, valid, criterion, clip=1.0)"
    ),
    "not_ins304_one_update_for_two_steps": scenes("train(gen, disc, loader)", loader=regression),
    "not_ins306_bfloat16_needs_no_scaler": scenes("BF16Trainer(model).train(loader)"),
    "not_ins307_native_scaler_class": scenes("main(model, loader, criterion)"),
    "not_ins401_end_of_epoch_hook": scenes("Regressor(net, loader).fit(epochs)"),
    "not_ins401_plateau": scenes("main(model, train_loader, val_loader, criterion, epochs)"),
    "not_ins401_rate_set_by_hand": scenes(get_batch=lambda: drawn(loader())),
    "not_ins401_scheduled_optimizer_class": scenes(
        "train(transformer, loader, epochs)",
        transformer=lambda: Translator(),
        loader=lambda: loader(ids(5), Padded(6, 0)),
    ),
    "not_ins401_skipped_step_does_not_advance": scenes("fit(model, loader, criterion, epochs)"),
    "not_ins402_behind_the_gate": scenes("Loop(model, 4).run(loader, epochs)"),
    "not_ins402_per_batch_without_accumulation": scenes(
        "train(net, loader, ema, epochs)", ema=Anything
    ),
    "not_ins402_two_schedulers": scenes(model=Detector, loader=loader),
    "not_ins501_guarded": scenes(load_backbone=lambda: Colours),
    "not_ins501_image_gradient": scenes(
        "x, y = next(iter(loader))\npgd(model, x, y, 0.1, 0.1, 5)\n"
        "guided(denoiser, classifier, x, 1, 0.1)"
    ),
    "not_ins501_read_after_step": scenes("train(model, loader, writer)", writer=Anything),
    "not_ins502_chained_parameters": scenes(loader=lambda: loader(numbers(28, 28), classes)),
    "not_ins502_frozen_encoder": scenes("probe(encoder, loader, 8, 8)"),
    "not_ins502_momentum_target": scenes(
        "train(BYOL(net, predictor), loader)",
        loader=lambda: [((a, b), None) for a, b in regression()],
    ),
    "not_ins503_head_swapped_before_optimizer": scenes("Transfer(10).fit(loader)"),
    "not_ins503_new_group_for_new_head": scenes(
        first_task=lambda: loader(numbers(64), classes),
        second_task=lambda: loader(numbers(64), classes),
    ),
    "not_ins503_optimizer_before_to_device": scenes(
        "main(loader, 'cpu')", loader=lambda: loader(numbers(20), two)
    ),
    "not_ins601_auxiliary_losses": scenes(
        "train(model, loader, epochs)", model=lambda: Segments(heads=3)
    ),
    "not_ins601_reinforce": scenes("main(env, Reinforce(policy), 20)", env=World),
    "not_ins601_returned_as_number": scenes("train(model, loader, epochs)"),
    "not_ins603_no_sync_with_backward_outside": scenes("train(net, feed, updates, 4, 'cpu')"),
    "not_ins603_sync_flag": scenes(get_batch=lambda: drawn(loader(ids(6), ids(6))), local_rank=0),
    "not_ins604_frozen_batchnorm": scenes("finetune(detector, loader, epochs)", detector=Detector, loader=loader),
    "not_ins604_mode_restored": scenes("train(model, feed, val_loader, loss_fn, 30)"),
    "not_ins604_mode_set_elsewhere": scenes("main(model, train_loader, val_loader)"),
}


def two():
    return torch.randint(0, 2, ())


def five():
    return torch.randint(0, 5, ())


def drawn(batches):
    """Return a function that draws a batch, whatever it is asked for."""
    stream = endless(batches)
    return lambda *_: next(stream)


class Images(nn.Module):
    """Makes images out of noise."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(128, 4 * WIDTH)

    def forward(self, x):
        return self.layer(x).view(-1, 1, 4, WIDTH)


class Returned(Judged):
    """A network that gives its loss first."""

    def forward(self, x, labels):
        return super().forward(x, labels, return_dict=False)


class Translator(Net):
    """Reads one text and what there is of the other."""

    def forward(self, source, target):
        return super().forward(source) + super().forward(target)
