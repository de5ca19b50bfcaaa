"""What each loop needs to run, by the name of its file; and which loops cannot run here."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from tests.watching.cast import (
    Images,
    Returned,
    alone,
    endless_windows,
    five,
    labelled,
    large,
    regression,
    saved,
    two,
    wide,
    windows,
)
from tests.watching.props import (
    WIDTH,
    Actor,
    Anything,
    Judged,
    Net,
    Recurrent,
    Score,
    World,
    classes,
    endless,
    ids,
    loader,
    numbers,
)
from tests.watching.second import SECOND
from tests.watching.stage import Scene, scenes

CANNOT_RUN = {
    "not_ins104_package_goes_backward": "its package does not exist",
    "not_ins401_one_of_several_schedules": "transformers is not installed",
    "not_ins401_warm_up_from_a_table": "transformers is not installed",
    "not_ins503_embeddings_fit_already": "transformers is not installed",
    "not_ins503_embeddings_resized_before": "transformers is not installed",
    "not_ins604_layers_taken_over": "its pretrained model is in another file, with its weights",
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

SCENES = {
    **SECOND,
    # The rules' own examples
    "INS103": scenes(loader=wide),
    "INS105": scenes(loader=regression),
    "INS203": scenes(loader=lambda: loader(numbers(), lambda: torch.randint(0, 3, ()))),
    "INS207": scenes(loader=regression),
    "INS503": scenes(loader=lambda: loader(numbers(), five)),
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
    "not_ins201_negative_sum": scenes(
        world=lambda: None,
        policy=Net,
        play=lambda: lambda _, policy: ([*policy(torch.randn(3, WIDTH)).mean(1)], torch.ones(3)),
    ),
    "not_ins205_sums_in_a_stepper": scenes(
        args=lambda: SimpleNamespace(accum=3, micro_batch_size=4, num_patches=1), loader=regression
    ),
    "not_ins205_weights_in_a_stepper": scenes(
        args=lambda: SimpleNamespace(lr=0.1, epochs=2),
        heads=lambda: lambda out: (out, out.abs(), -out),
        loader=regression,
    ),
    "not_ins502_one_method_at_a_time": scenes('Training(net, "twins").run(loader)'),
    "not_ins104_written_into_a_part": scenes(
        "improve([(torch.randn(3, 6), torch.randn(3, 4)) for _ in range(4)])"
    ),
    "not_ins102_copies_get_the_gradients": scenes("Halves(model).train(loader)"),
    "not_ins503_best_one_is_kept": scenes(
        "Pipeline(6).train(torch.randn(4, 8), torch.randint(0, 3, (4,)))"
    ),
    "not_ins101_module_of_a_base_class": scenes("Ranker(model).train(loader)"),
    "not_ins101_split_over_methods": scenes("Regression(net).fit(loader)"),
    "not_ins101_style_transfer_closure": scenes(
        content=lambda: torch.randn(WIDTH),
        style=lambda: torch.randn(WIDTH),
        style_distance=lambda: nn.functional.mse_loss,
        content_distance=lambda: nn.functional.mse_loss,
    ),
    "not_ins102_counter_elsewhere": scenes(
        "for _ in range(3): train(model, loader, state)", state=lambda: SimpleNamespace(n=0)
    ),
    "not_ins102_out_of_memory": scenes("train(model, optimizer, loader)"),
    "not_ins102_spike_guard": scenes("for _ in range(3): train(model, loader, limit)", limit=1.5),
    "not_ins102_trainable_gradients_kept": scenes("train(model, loader, 4)"),
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
    "not_ins104_loss_scaler_call": scenes(
        "train_one_epoch(model, criterion, loader, optimizer, 1.0)"
    ),
    "not_ins104_sharpness_aware": scenes(),
    "not_ins104_steps_are_timed": scenes(batch=lambda: torch.randn(4, WIDTH)),
    "not_ins105_gan_with_penalty": scenes(
        "opts = [torch.optim.SGD(part.parameters()) for part in (gen, critic)]\n"
        "train(gen, critic, loader, *opts)",
        loader=lambda: loader(numbers(1, 4, WIDTH)),
        gen=Images,
    ),
    "not_ins106_each_its_own": scenes(
        actor=Actor, critic=Score, batches=lambda: loader(numbers(), numbers(), numbers(()))
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
    "not_ins202_defaults_that_callers_change": scenes("Fit(epochs=3).train(model, loader)"),
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
    "not_ins204_critic_and_a_clear_outside": scenes(
        loader=lambda: [(torch.randn(3, 8), torch.randn(3, 4)) for _ in range(20)]
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
    "not_ins302_norm_logged_before_step": scenes(model=Returned, log=Anything),
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
    "not_ins502_frozen_above": scenes(
        "train(loader)", loader=lambda: loader(numbers(), numbers(1))
    ),
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
    "not_ins503_weights_loaded": Scene(
        names={"build_model": lambda: Net}, saved=lambda: Net().state_dict()
    ),
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
    "not_ins503_fold_makes_both": scenes(
        "cross_validate([loader, loader], device)",
        loader=lambda: loader(numbers(5, WIDTH), lambda: torch.randint(0, 3, (5,))),
        device=lambda: "cpu",
    ),
    "not_ins604_another_model_is_trained": scenes(
        loader=lambda: loader(numbers(784), classes),
        test_loader=lambda: loader(numbers(784), classes),
    ),
    "not_ins604_evaluate_puts_it_back": scenes("train(model, loader, valid)"),
    "not_ins604_frozen_teacher": scenes(loader=alone),
    "not_ins604_helper_sets_the_mode": scenes(
        "run(model, sampler, loader, valid, epochs)", sampler=Anything, report=Anything
    ),
}
