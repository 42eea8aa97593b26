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
    marked = Layout(("a", "a.mean", "a.count"), ((2,), (2,), ()), frozenset({"a.mean", "a.count"}))
    for layout in (params.layout, scalar, Layout((), ()), marked):
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


def test_a_module_tells_buffers_from_parameters_and_the_text_of_a_layout_does_too():
    params = Params.from_module(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert params.layout.buffers == {"1.running_mean", "1.running_var"}
    assert params.layout.describe() == (
        "0.weight:2x2;0.bias:2;1.weight:2;1.bias:2;1.running_mean:2 buffer;1.running_var:2 buffer"
    )


@pytest.fixture
def normalised() -> Params:
    values = {"primary.w": [3.0], "primary.var": [9.0], "head.w": [4.0]}
    return Params.of({name: torch.tensor(value) for name, value in values.items()}, ["primary.var"])


def test_parts_and_new_names_keep_the_buffers(normalised):
    part = normalised.select("primary.")
    assert part.layout.buffers == {"primary.var"}
    assert normalised.select("head.").layout.buffers == frozenset()
    assert part.rename("primary.", "secondary.").layout.buffers == {"secondary.var"}
    assert (part * 2.0).layout.buffers == {"primary.var"}
    assert normalised.replace(part).layout == normalised.layout


def test_norms_and_parameters_leave_buffers_out(normalised):
    assert normalised.parameters.tolist() == [3.0, 4.0]
    assert normalised.norm() == 5.0
    assert normalised.vector.tolist() == [3.0, 9.0, 4.0]


def test_buffers_can_be_taken_from_another_model(normalised):
    other = normalised * 10.0
    assert normalised.with_buffers(other).vector.tolist() == [3.0, 90.0, 4.0]
    assert normalised.vector.tolist() == [3.0, 9.0, 4.0], "the original is untouched"
    with pytest.raises(InvalidMessage, match="layout"):
        normalised.with_buffers(other.select("primary."))


def test_without_buffers_nothing_is_copied(params):
    assert params.parameters is params.vector
    assert params.with_buffers(params * 2.0) is params


def test_a_buffer_and_a_parameter_of_the_same_name_are_not_the_same_layout(normalised):
    plain = Params.of(dict(normalised))
    assert plain.layout != normalised.layout
    assert plain.digest() != normalised.digest()
