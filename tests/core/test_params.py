# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import nn

from feddag.core.errors import InvalidMessage
from feddag.core.params import Layout, Params


@pytest.fixture
def params() -> Params:
    return Params.of(
        {"primary.w": torch.arange(6.0).view(2, 3), "primary.b": torch.ones(2), "head.w": torch.zeros(1)}
    )


def test_params_read_like_a_dict_and_compute_like_a_vector(params):
    assert list(params) == ["primary.w", "primary.b", "head.w"]
    assert params["primary.w"].shape == (2, 3)
    assert (params + params * 2.0 - params).vector.tolist() == [0, 2, 4, 6, 8, 10, 2, 2, 0]
    assert params.norm() == pytest.approx((0 + 1 + 4 + 9 + 16 + 25 + 2) ** 0.5)


def test_select_takes_the_tensors_with_a_prefix_and_replace_puts_them_back(params):
    part = params.select("primary.")
    assert list(part) == ["primary.w", "primary.b"]
    changed = params.replace(part * 0.0)
    assert changed["primary.w"].abs().sum() == 0
    assert params["primary.w"].sum() == 15, "the original is untouched"
    assert params.select("nothing").layout.size == 0


def test_replace_refuses_tensors_that_do_not_fit(params):
    with pytest.raises(InvalidMessage, match=r"head\.w"):
        params.replace(Params.of({"head.w": torch.zeros(2)}))


def test_rename_changes_names_and_keeps_bits(params):
    renamed = params.select("primary.").rename("primary.", "secondary.")
    assert list(renamed) == ["secondary.w", "secondary.b"]
    assert torch.equal(renamed["secondary.w"], params["primary.w"])


def test_adding_params_of_another_layout_is_refused(params):
    with pytest.raises(InvalidMessage, match="layout"):
        params + params.select("head.")


def test_a_layout_survives_its_own_description(params):
    scalar = Layout(("a", "b"), ((), (2, 1)))
    for layout in (params.layout, scalar, Layout((), ())):
        assert Layout.parse(layout.describe()) == layout


def test_spans_merge_neighbours(params):
    assert params.layout.spans(("primary.",)) == [slice(0, 8)]
    assert params.layout.spans(("primary.w", "head.")) == [slice(0, 6), slice(8, 9)]


def test_the_digest_sees_names_shapes_and_every_bit(params):
    assert params.digest() == Params(params.vector.clone(), params.layout).digest()
    bumped = params.vector.clone()
    bumped[3] = torch.nextafter(bumped[3], torch.tensor(9e9))
    assert params.like(bumped).digest() != params.digest()
    assert params.rename("head.", "tail.").digest() != params.digest()


def test_a_vector_of_the_wrong_length_is_refused(params):
    with pytest.raises(InvalidMessage, match="9 floats"):
        Params(torch.zeros(4), params.layout)


def test_a_module_gives_its_parameters_then_its_floating_point_buffers():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert list(Params.from_module(module)) == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
    ]  # fmt: skip
