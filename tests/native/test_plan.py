# SPDX-License-Identifier: Apache-2.0
"""Which networks the kernels take, and what is said about the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from feddag import native
from tests.native.networks import TwoEncoders, flat, lenet_encoder, small_encoder


def conv(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), *layers, nn.Flatten(), nn.Linear(8, 2))


UNSUPPORTED = [
    (conv(nn.GroupNorm(1, 2)), r"1 \(GroupNorm\)"),
    (conv(nn.BatchNorm2d(2)), r"1 \(BatchNorm2d\): layers with buffers"),
    (conv(nn.Sigmoid()), r"1 \(Sigmoid\)"),
    (conv(nn.Dropout2d()), r"1 \(Dropout2d\)"),
    (conv(nn.AvgPool2d(2)), r"1 \(AvgPool2d\)"),
    (conv(nn.MaxPool2d(2, stride=1)), r"1 \(MaxPool2d\): only pooling in whole windows"),
    (conv(nn.MaxPool2d(3, padding=1)), r"1 \(MaxPool2d\): only pooling in whole windows"),
    (conv(nn.MaxPool2d(2, ceil_mode=True)), r"1 \(MaxPool2d\): only pooling in whole windows"),
    (conv(nn.MaxPool2d(5)), r"1 \(MaxPool2d\): its input .* is too small"),
    (conv(nn.Dropout(0.1), nn.MaxPool2d(2)), r"2 \(MaxPool2d\)"),
    (nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9, 2)), r"0 \(MaxPool2d\)"),
    (
        nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(8, 2)),
        r"0 \(Conv2d\): only stride 1",
    ),
    (nn.Sequential(nn.Conv2d(1, 2, 2, padding="same"), nn.Flatten(), nn.Linear(8, 2)), "even kernel"),
    (
        nn.Sequential(nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 2)),
        r"0 \(Conv2d\): takes 2 channels, gets 1",
    ),
    (nn.Sequential(nn.Flatten(), nn.Linear(7, 3), nn.Linear(3, 2)), r"1 \(Linear\): takes 7 inputs"),
    (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(36, 2)), r"1 \(ReLU\)"),
    (nn.Sequential(nn.Flatten(), nn.Linear(35, 2)), "takes 35 features, the encoders give 36"),
    (nn.Linear(36, 2), "Linear: expected sub-modules `primary`"),
]


@pytest.mark.parametrize(("module", "reason"), UNSUPPORTED)
def test_what_is_outside_the_vocabulary_is_named(module: nn.Module, reason: str) -> None:
    with pytest.raises(native.Unsupported, match=reason):
        native.describe(module, (1, 6, 6))


def test_a_layer_with_its_own_forward_pass_or_hooks_is_not_trusted() -> None:
    class Loud(nn.ReLU):
        pass

    with pytest.raises(native.Unsupported, match=r"primary.1 \(Loud\): not one of torch's own layers"):
        native.describe(TwoEncoders(nn.Sequential(nn.Flatten(), Loud()), None, 36), (1, 6, 6))
    encoder = small_encoder()
    encoder[1].register_forward_hook(lambda *_: None)
    with pytest.raises(native.Unsupported, match=r"primary.1 \(ReLU\)"):
        native.describe(TwoEncoders(encoder, None, 5), (2, 9, 8))


def test_a_head_with_its_own_forward_pass_is_not_trusted() -> None:
    class Silent(nn.Linear):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return 0 * super().forward(features)

    module = TwoEncoders(small_encoder(), None, 5)
    module.head = Silent(module.head.in_features, module.head.out_features)
    with pytest.raises(native.Unsupported, match=r"head \(Silent\): not one of torch's own layers"):
        native.describe(module, (2, 9, 8))


def test_tied_and_reparametrised_weights_are_not_taken() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(36, 36), nn.ReLU(), nn.Linear(36, 36))
    encoder[3].weight = encoder[1].weight
    with pytest.raises(native.Unsupported, match=r"primary.3 \(Linear\): its parameters are not its own"):
        native.describe(TwoEncoders(encoder, None, 36), (1, 6, 6))


def test_a_third_part_with_parameters_is_named() -> None:
    module = TwoEncoders(small_encoder(), None, 5)
    module.projector = nn.Linear(5, 5)
    with pytest.raises(native.Unsupported, match="projector: only primary, secondary and head"):
        native.describe(module, (2, 9, 8))


def test_the_plan_knows_each_tensors_place_in_the_flat_vector() -> None:
    module = TwoEncoders(lenet_encoder(), lenet_encoder(), 168)
    plan = native.describe(module, (1, 28, 28))
    assert plan.size == sum(parameter.numel() for parameter in module.parameters()) == 2 * 60_856 + 1_690
    vector = flat(module)
    for (name, start, end), (own_name, parameter) in zip(plan.places, module.named_parameters(), strict=True):
        assert name == own_name
        assert torch.equal(vector[start:end], parameter.detach().flatten())


def test_prefixes_select_whole_encoders_and_the_head() -> None:
    plan = native.describe(TwoEncoders(small_encoder(), small_encoder(), 10), (2, 9, 8))
    assert plan.trained(("",)) == ((True, True), True)
    assert plan.trained(("primary.", "head.")) == ((True, False), True)
    assert plan.trained(("secondary.",)) == ((False, True), False)
    with pytest.raises(native.Unsupported, match="only a part of encoder 'primary'"):
        plan.trained(("primary.0.",))


def test_bad_arguments_get_one_clear_sentence(isa: str) -> None:
    module = TwoEncoders(small_encoder(), None, 5)
    plan, vector = native.describe(module, (2, 9, 8)), flat(module)
    x, y, rows = torch.zeros(4, 2, 9, 8), torch.zeros(4, dtype=torch.long), [torch.arange(4)]
    for changes, sentence in [
        ({"vector": vector[1:]}, r"flat vector has shape \(\d+,\): expected \(\d+,\)"),
        ({"x": torch.zeros(4, 2, 9, 9)}, r"samples of shape \(2, 9, 9\): expected \(2, 9, 8\)"),
        ({"x": x.byte()}, r"uint8 samples need a table of shape \(2, 256\)"),
        ({"y": y[1:]}, r"labels have shape \(3,\): expected \(4,\)"),
        ({"y": y + 10}, "labels from 10 to 10: expected 0 to 9"),
        ({"y": y - 1}, "labels from -1 to -1: expected 0 to 9"),
        ({"batches": [torch.tensor([4])]}, "batches name samples 4 to 4: expected 0 to 3"),
        ({"batches": [torch.tensor([-1])]}, "batches name samples -1 to -1"),
        ({"batches": [torch.tensor([], dtype=torch.long)]}, "a batch has no samples"),
        ({"sample_weights": torch.ones(3)}, r"sample weights have shape \(3,\): expected \(4,\)"),
        ({"proximal": (0.1, vector[1:])}, "the proximal term's center has shape"),
    ]:
        arguments = {"vector": vector, "x": x, "y": y, "batches": rows, "lr": 0.1, **changes}
        with pytest.raises(ValueError, match=sentence):
            native.train(plan, **arguments)
    with pytest.raises(ValueError, match="no encoder 'third': expected one of 'primary'"):
        native.features(plan, vector, x, "third")
