"""What the loops of the second set need to run."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from tests.watching.cast import (
    Colours,
    Critic,
    Replay,
    Segments,
    Translator,
    alone,
    dictionaries,
    drawn,
    padded,
    regression,
    two,
)
from tests.watching.props import (
    WIDTH,
    Anything,
    Detector,
    Net,
    Padded,
    World,
    classes,
    endless,
    ids,
    loader,
    numbers,
)
from tests.watching.stage import scenes

SECOND = {
    "not_ins101_after_step_and_before_loop": scenes("main(model, stream)"),
    "not_ins101_base_class_clears": scenes("main(net, loader)"),
    "not_ins101_between_forward_and_backward": scenes(
        train_loader=lambda: loader(numbers(1, 28, 28), classes)
    ),
    "not_ins101_grad_none_loop": scenes("fit(model, loader)\nfit_by_module(net, loader)"),
    "not_ins101_lbfgs_closure": scenes(
        "style_transfer(image, content, style, features, 30)\nFit(net, *next(iter(loader))).run(5)",
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
        "main((actor, critic), buffer, 30)", critic=Critic, buffer=Replay
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
        transformer=Translator,
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
    "not_ins604_frozen_batchnorm": scenes(
        "finetune(detector, loader, epochs)", detector=Detector, loader=loader
    ),
    "not_ins604_mode_restored": scenes("train(model, feed, val_loader, loss_fn, 30)"),
    "not_ins604_mode_set_elsewhere": scenes("main(model, train_loader, val_loader)"),
}
