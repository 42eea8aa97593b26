# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import json
import math
import struct
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from feddag.core import codec
from feddag.core.clusters import Clusters
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidMessage
from feddag.core.message import message, options, public, sensitive, sensitive_kinds
from feddag.core.params import Params


@message
class Inner:
    counts: np.ndarray = sensitive("counts")
    name: str = ""


@message
class Everything:
    params: Params = public()
    models: tuple[Params, ...] = public(default=())
    array: np.ndarray = sensitive("update")
    named: dict[str, Params] = public()
    inners: tuple[Inner, ...] = ()
    maybe: Inner | None = None
    local: LocalTraining = LocalTraining()
    flag: bool = False
    number: int = 0
    ratio: float = 0.5
    words: tuple[str, ...] = ()
    clusters: Clusters | None = None


names = st.text(
    st.characters(codec="utf-8", exclude_characters=":;#", exclude_categories=("Cs",)), max_size=8
)
arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements={"allow_nan": False, "allow_infinity": False},
)
params = st.dictionaries(names, st.lists(st.integers(0, 3), max_size=3), max_size=3).map(
    lambda shapes: Params.of({n: torch.arange(float(math.prod(s))).view(s) for n, s in shapes.items()})
)
inners = st.builds(Inner, counts=arrays, name=names)
everything = st.builds(
    Everything,
    params=params,
    models=st.lists(params, max_size=2).map(tuple),
    array=arrays,
    named=st.dictionaries(names, params, max_size=2),
    inners=st.lists(inners, max_size=2).map(tuple),
    maybe=st.none() | inners,
    flag=st.booleans(),
    number=st.integers(-(2**60), 2**60),
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    words=st.lists(names, max_size=3).map(tuple),
    clusters=st.none() | st.just(Clusters(members=(("a", "c"), ("b",)))),
)


@given(everything)
@settings(max_examples=150, deadline=None)
def test_every_message_survives_the_round_trip_through_bytes_bit_for_bit(value):
    back = codec.decode(Everything, codec.encode(value))
    assert codec.digest(back) == codec.digest(value)
    assert back.words == value.words
    assert back.array.dtype == value.array.dtype
    assert back.array.shape == value.array.shape


def sample(**changes) -> Everything:
    fields = {"params": Params.of({"w": torch.ones(3)}), "array": np.ones(2), "named": {}}
    return Everything(**{**fields, **changes})


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("local.lr", "0.1", r"field 'local\.lr': expected float, got str"),
        ("number", 1.5, "field 'number': expected int, got float"),
        ("flag", 1, "field 'flag': expected bool, got int"),
        ("ratio", float("nan"), "field 'ratio': expected a finite number, got nan"),
        ("array", np.array([0.0, np.inf]), "field 'array': expected finite numbers, got inf at position 1"),
        ("array", 3.0, "field 'array': expected an array of numbers"),
        ("params", np.ones(4, np.float32), "field 'params': expected a vector that fits its layout"),
        ("params", np.ones(3), "field 'params': expected float32 parameters, got float64"),
        ("surprise", 1, "field 'surprise': expected no such field"),
        ("words#", 10**12, "field 'words': expected a length up to"),
    ],
)
def test_a_bad_field_is_named_with_what_was_expected(path, value, expected):
    payload = codec.flatten(sample())
    payload[path] = value
    with pytest.raises(InvalidMessage, match=expected):
        codec.unflatten(Everything, payload)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("number", 2**63, "field 'number': expected an integer from .* got one of 64 bits"),
        ("ratio", 10**400, "field 'ratio': expected an integer from"),
        ("words.0", "\ud800", r"field 'words\.0': expected Unicode text"),
        ("named#", "[" * 10_000, "field 'named': expected a list of keys"),
        ("named#", '["a", "a"]', "field 'named': expected different keys"),
        ("named#", '["\\ud800"]', "field 'named': expected a list of keys"),
        ("params#", "w:-3", "expected a vector that fits its layout, got '-3' is not a shape"),
        ("params#", "w:1_0", "'1_0' is not a shape"),
        ("params#", "w:\N{ARABIC-INDIC DIGIT THREE}", "is not a shape"),
        ("params#", "w:" + "9" * 5_000, "is not a shape"),
        ("params#", f"w:3;v:0x{2**40}x2", "is too large"),
        ("params#", "w:1;w:2", "a tensor's name appears twice"),
        ("params#", "w:3 buffers", "'3 buffers' is not a shape"),
        ("params#", "w:3 buffer buffer", "'3 buffer' is not a shape"),
        ("params#", "w", "expected a vector that fits its layout"),
        ("array", np.array([1j]), "field 'array': expected an array of numbers"),
        ("clusters.members.0.0", "b", "field 'members': expected each client in one cluster"),
        ("\ud800" + "x" * 500, 1, r"field '\\ud800x+…': expected no such field"),
    ],
)
def test_hostile_values_are_refused_with_a_reason(path, value, expected):
    payload = codec.flatten(sample(words=("a",), clusters=Clusters(members=(("a",), ("b",)))))
    payload[path] = value
    with pytest.raises(InvalidMessage, match=expected):
        codec.unflatten(Everything, payload)


def with_scalars(text: bytes) -> bytes:
    """A packed message whose scalars are this text."""
    arrays = load_arrays(codec.encode(sample()))
    return save_arrays({**arrays, "": np.frombuffer(text, dtype=np.uint8)})


@pytest.mark.parametrize(
    "text",
    [b"3", b"[]", b'"text"', b"null", b"NaN", b"{", b"", b"\xff\xfe", b"[" * 100_000, b"9" * 5_000,
     b'{"a":' * 50_000, b'{"array": 1}', b'{"number": Infinity}', b'{"number": 1e999}'],
)  # fmt: skip
def test_scalars_that_are_no_plain_object_are_refused(text):
    with pytest.raises(InvalidMessage):
        codec.decode(Everything, with_scalars(text))


def test_a_check_of_the_message_itself_that_fails_is_an_invalid_message():
    @message
    class Positive:
        number: int

        def __post_init__(self):
            if self.number < 0:
                raise ValueError("the number is negative")

    with pytest.raises(InvalidMessage, match="expected a valid Positive, got the number is negative"):
        codec.unflatten(Positive, {"number": -1})


def test_a_missing_field_is_named():
    payload = codec.flatten(sample())
    del payload["local.lr"]
    with pytest.raises(InvalidMessage, match=r"local\.lr"):
        codec.unflatten(Everything, payload)


def test_huge_finite_values_whose_sum_overflows_are_not_mistaken_for_infinity():
    big = np.full(4, 3e38, dtype=np.float32)
    assert codec.decode(Everything, codec.encode(sample(array=big))).array[0] == big[0]


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused_with_a_named_reason(data):
    with pytest.raises(InvalidMessage):
        codec.decode(Everything, data)


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_altered_bytes_never_crash_the_decoder(position, change):
    data = bytearray(codec.encode(sample(words=("ab", "c"))))
    data[position % len(data)] ^= change
    with contextlib.suppress(InvalidMessage):
        codec.decode(Everything, bytes(data))


ODD_NUMBERS = (None, True, 0, -1, 10**9, 2**63, 10**30, 1e308, float("nan"), -math.inf)
ODD_TEXTS = ("", "\ud800", "x" * 999, "[]", '["a"]', "w:3", "w:-1", "w:0x9", ";", "[" * 2_000)
ODD_VALUES = (*ODD_NUMBERS, *ODD_TEXTS, [], {}, [[[[]]]], {"a": {"b": 1}})
ODD_BYTES = (b"", b"{", b"[" * 5_000, b"NaN", b"9" * 5_000, b"\xff", b'"', b"-", b"1e9", b"null", b"\\ud800")


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Packed bytes that were damaged, or written by somebody who knows the format and means harm."""
    kind = rng.integers(0, 5)
    if kind == 0:  # change bytes
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), size=rng.integers(1, 6)):
            damaged[at] = rng.integers(0, 256)
        return bytes(damaged)
    if kind == 1:  # cut, or say another length of the header
        if rng.random() < 0.5:
            return data[: rng.integers(0, len(data))] + rng.bytes(rng.integers(0, 9))
        return struct.pack("<Q", rng.choice([0, 1, len(data), 2**31, 2**62])) + data[8:]
    arrays = load_arrays(data)
    text = arrays.pop("").tobytes()
    if kind == 2:  # change the text of the scalars
        at, end = sorted(rng.integers(0, len(text) + 1, size=2))
        text = text[:at] + ODD_BYTES[rng.integers(len(ODD_BYTES))] + text[end if rng.random() < 0.3 else at :]
    else:
        scalars = json.loads(text)
        for _ in range(rng.integers(1, 4)):
            table = scalars if kind == 3 else arrays
            path = str(rng.choice([*table, "surprise", "words#", "maybe#"]))
            if rng.random() < 0.3:
                table.pop(path, None)
            elif kind == 3:
                scalars[path] = ODD_VALUES[rng.integers(len(ODD_VALUES))]
            else:
                shape = rng.integers(0, 4, size=rng.integers(0, 4))
                values = rng.choice([0.0, 1.0, np.nan, np.inf, 1e300], size=shape)
                with np.errstate(all="ignore"):
                    arrays[path] = values.astype(rng.choice(["f2", "f4", "f8", "i1", "u8", "?"]))
        text = json.dumps(scalars).encode()
    return save_arrays({**arrays, "": np.frombuffer(text, dtype=np.uint8)})


def decode_mutated(cases: int, seed: int) -> int:
    """Decode mutated messages; every one is refused as InvalidMessage or can be sent on. Counts the valid."""
    clusters = Clusters(members=(("a", "c"), ("b",)))
    inner = Inner(counts=np.arange(3), name="ü")
    whole = sample(words=("ab", "c"), maybe=inner, inners=(inner,), clusters=clusters,
                   named={"k": Params.of({"w": torch.ones(2)})})  # fmt: skip
    data, rng = codec.encode(whole), np.random.default_rng(seed)
    valid, sentences = 0, [""]
    for case in range(cases):
        attack = mutated(data, rng)
        try:
            value = codec.decode(Everything, attack)
        except InvalidMessage as error:
            sentences.append(str(error))
            continue
        again = codec.decode(Everything, codec.encode(value))
        assert codec.digest(again) == codec.digest(value), f"case {case}"
        codec.nbytes(value)
        valid += 1
    assert max(len(sentence.encode()) for sentence in sentences) < 400
    return valid


def test_mutated_messages_are_valid_or_refused_and_never_raise_anything_else():
    assert 0 < decode_mutated(500, seed=1) < 500


@pytest.mark.hard
def test_many_mutated_messages_are_valid_or_refused_and_never_raise_anything_else(counted):
    assert 0 < decode_mutated(22_000, seed=2) < 22_000
    counted("mutated messages", 22_000)


def test_the_size_counts_arrays_numbers_and_text_and_not_structure():
    @message
    class Small:
        params: Params = public()
        local: LocalTraining
        tag: str

    value = Small(params=Params.of({"w": torch.ones(10)}), local=LocalTraining(), tag="abc")
    assert codec.nbytes(value) == 10 * 4 + 10 * 8 + len("sgd") + len("constant") + 3


def test_a_tensor_field_must_say_whether_it_is_sensitive():
    with pytest.raises(TypeError, match=r"sensitive\(kind\) or public\(\)"):

        @message
        class Undeclared:
            weights: np.ndarray


def test_a_field_type_outside_the_closed_set_is_refused():
    with pytest.raises(TypeError, match="cannot travel"):

        @message
        class Odd:
            things: list[int]


def test_sensitive_kinds_are_found_in_nested_messages():
    assert sensitive_kinds(Everything) == {"update", "counts"}


@options
class Choices:
    colour: Literal["red", "green"] = "red"
    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("size must be at least 1")


@message
class Order:
    choices: Choices = Choices()
    again: Literal["yes", "no"] = "no"


def test_options_check_their_choices_with_one_sentence_and_then_their_own_rules():
    assert Choices(colour="green") == dataclasses.replace(Choices(), colour="green")
    with pytest.raises(ValueError, match=r"^colour = 'blue': expected one of red, green$"):
        Choices(colour="blue")
    with pytest.raises(ValueError, match="size must be at least 1"):
        Choices(size=0)


def test_choices_travel_as_text_and_are_checked_on_arrival():
    order = Order(choices=Choices(colour="green"), again="yes")
    assert codec.decode(Order, codec.encode(order)) == order
    assert codec.nbytes(order) == len("green") + 8 + len("yes")
    for path, value in (("choices.colour", "blue"), ("again", "perhaps"), ("again", 1)):
        with pytest.raises(InvalidMessage, match=path):
            codec.unflatten(Order, {**codec.flatten(order), path: value})


def test_choices_other_than_text_cannot_travel():
    with pytest.raises(TypeError, match="cannot travel"):

        @message
        class Numbered:
            level: Literal[1, 2]


@message
class Names:
    """Many texts."""

    names: tuple[str, ...]


def test_very_many_texts_are_one_entry_and_come_back():
    few, many = (Names(names=tuple(f"client {i} ü" for i in range(n))) for n in (1000, 1001))
    assert len(codec.flatten(few)) == 1001
    assert len(codec.flatten(many)) == 1
    for value in (few, many):
        assert codec.decode(Names, codec.encode(value)) == value
    assert codec.digest(many) != codec.digest(Names(names=(*many.names[1:], "x")))


@pytest.mark.parametrize(
    "text", ["[1]", "{", '"a"', '["a"]', json.dumps(["\ud800"] * 1001), json.dumps([1] * 1001)]
)
def test_an_entry_of_texts_that_is_none_is_refused(text):
    with pytest.raises(InvalidMessage, match="names"):
        codec.unflatten(Names, {"names": text})
