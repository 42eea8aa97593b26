# SPDX-License-Identifier: Apache-2.0
"""Message ⇄ flat payload ⇄ bytes. Decoding is driven by declared types: nothing on the wire names code.

A payload maps paths such as `local.lr` or `models.0` to arrays and scalars. Structure that both sides know
from the types (names, lengths, layouts) travels under paths ending in `#` and is not counted as traffic.
"""

import dataclasses
import hashlib
import json
import math
import typing
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from feddag.core.errors import InvalidMessage
from feddag.core.message import SCALARS, check_declarations, field_types, is_message, unwrap_optional
from feddag.core.params import Layout, Params

T = TypeVar("T")
Payload = dict[str, Any]  # path → numpy array | bool | int | float | str
_SCALAR_BYTES = 8
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1  # the integers that other languages and numpy can hold too
_LONG = 1000  # a longer tuple of texts is one entry of a payload
_SHOWN = 60  # characters of foreign text that an error message repeats


def flatten(value: Any) -> Payload:
    """A message as paths → arrays and scalars."""
    payload: Payload = {}
    _flatten_fields(value, "", payload)
    return payload


def unflatten(cls: type[T], payload: Payload) -> T:
    """Build and validate a message of the given class; raises InvalidMessage naming the field."""
    left = dict(payload)
    result = _unflatten_fields(cls, "", left)
    if left:
        raise InvalidMessage(_shown(next(iter(left))), "no such field", "an unknown field")
    return result


def validate(value: Any) -> None:
    """Check types and finiteness of a message that was built in this process."""
    unflatten(type(value), flatten(value))


def pack(payload: Payload) -> bytes:
    """A payload as bytes: safetensors, the scalars as JSON in one of its arrays."""
    arrays = {k: np.asarray(v, order="C") for k, v in payload.items() if isinstance(v, np.ndarray)}
    scalars = {k: v for k, v in payload.items() if not isinstance(v, np.ndarray)}
    # "" cannot be a path, so it is free to hold the scalars. Shapes () are kept by safetensors.
    arrays[""] = np.frombuffer(json.dumps(scalars).encode(), dtype=np.uint8)
    return save_arrays(arrays)


def unpack(data: bytes) -> Payload:
    """The payload that `pack` wrote; raises InvalidMessage when the bytes are not one."""
    try:
        arrays = load_arrays(data)
        scalars = json.loads(arrays.pop("").tobytes())
    # KeyError: no scalars, or a number format that numpy lacks. RecursionError: JSON is nested too deeply.
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidMessage("(bytes)", "a packed message", f"unreadable data ({_shown(error)})") from error
    if not isinstance(scalars, dict):
        raise InvalidMessage("(bytes)", "an object of scalars", _kind(scalars))
    if not scalars.keys().isdisjoint(arrays):
        twice = next(path for path in scalars if path in arrays)
        raise InvalidMessage(_shown(twice), "a scalar or an array", "both")
    return scalars | arrays


def encode(value: Any) -> bytes:
    """A message as bytes."""
    return pack(flatten(value))


def decode(cls: type[T], data: bytes) -> T:
    """A message of the given class from bytes, validated."""
    return unflatten(cls, unpack(data))


def nbytes(value: Any) -> int:
    """Size of a message in canonical form: arrays as they are, 8 bytes per number, text as UTF-8.

    Every engine gives the same figure; what the transport adds is reported separately.
    """
    return sum(_size(v) for k, v in flatten(value).items() if not k.endswith("#"))


def digest(value: Any) -> str:
    """SHA-256 over every path, type and bit of a message."""
    sha = hashlib.sha256()
    payload = flatten(value)
    for path in sorted(payload):
        item = payload[path]
        sha.update(f"{path}\0{_kind(item)}\0".encode())
        # repr of a float is exact, so equal text means equal bits
        sha.update(item.tobytes() if isinstance(item, np.ndarray) else repr(item).encode())
    return sha.hexdigest()


def _size(item: Any) -> int:
    if isinstance(item, np.ndarray):
        return item.nbytes
    return len(item.encode()) if isinstance(item, str) else _SCALAR_BYTES


def _kind(item: Any) -> str:
    if isinstance(item, np.ndarray):
        return f"{item.dtype} array of shape {item.shape}"
    return type(item).__name__


def _shown(text: object) -> str:
    """Foreign text in a form that every terminal can print, shortened."""
    whole = str(text).encode("unicode_escape").decode("ascii")
    return whole if len(whole) <= _SHOWN else whole[: _SHOWN - 1] + "…"


# -- flattening ------------------------------------------------------------------------------------------


def _flatten_fields(value: Any, prefix: str, payload: Payload) -> None:
    for f in dataclasses.fields(value):
        _flatten_value(getattr(value, f.name), prefix + f.name, payload)


def _flatten_value(value: Any, path: str, payload: Payload) -> None:
    if value is None:
        return
    if isinstance(value, Params):
        payload[path] = value.vector.contiguous().numpy()
        payload[path + "#"] = value.layout.describe()
    elif isinstance(value, (np.ndarray, SCALARS)):
        payload[path] = value
    elif isinstance(value, np.bool_ | np.integer | np.floating):
        payload[path] = value.item()
    elif is_message(value):
        payload[path + "#"] = ""  # tells "present" from None
        _flatten_fields(value, path + ".", payload)
    elif isinstance(value, tuple) and len(value) > _LONG and all(type(item) is str for item in value):
        payload[path] = json.dumps(value)  # one entry: names of a hundred thousand clients are quickly read
    elif isinstance(value, tuple):
        payload[path + "#"] = len(value)
        for i, item in enumerate(value):
            _flatten_value(item, f"{path}.{i}", payload)
    elif isinstance(value, dict):
        payload[path + "#"] = json.dumps(list(value))
        for i, item in enumerate(value.values()):
            _flatten_value(item, f"{path}.{i}", payload)
    else:
        raise InvalidMessage(path, "a value that can travel", type(value).__name__)


def _unflatten_fields(cls: type[T], prefix: str, left: Payload) -> T:
    check_declarations(cls)
    values = {name: _unflatten_value(hint, prefix + name, left) for name, hint in field_types(cls).items()}
    try:
        return cls(**values)
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:  # a check in __post_init__ failed
        where = prefix.rstrip(".") or cls.__name__
        raise InvalidMessage(where, f"a valid {cls.__name__}", _shown(error)) from error


def _unflatten_value(hint: Any, path: str, left: Payload) -> Any:
    hint, optional = unwrap_optional(hint)
    if optional and path not in left and path + "#" not in left:
        return None
    if hint is Params:
        layout = _take(left, path + "#", str, "a parameter layout")
        vector = _take_array(left, path)
        if vector.dtype != np.float32:
            raise InvalidMessage(path, "float32 parameters", str(vector.dtype))
        try:
            return Params(torch.from_numpy(vector), Layout.parse(layout))
        except (InvalidMessage, ValueError) as error:
            raise InvalidMessage(path, "a vector that fits its layout", _shown(error)) from error
    if hint is np.ndarray:
        return _take_array(left, path)
    if hint in SCALARS:
        return _take_scalar(left, path, hint)
    if is_message(hint):
        _take(left, path + "#", str, f"a {hint.__name__}")
        return _unflatten_fields(hint, path + ".", left)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        text = _take_scalar(left, path, str)
        if text not in args:
            raise InvalidMessage(path, f"one of {', '.join(args)}", _shown(repr(text)))
        return text
    if origin is tuple and args[0] is str and path in left:
        return _texts(_take(left, path, str, "a list of texts"), path)
    if origin is tuple:
        length = _take(left, path + "#", int, "a length")
        return tuple(
            _unflatten_value(args[0], f"{path}.{i}", left) for i in _checked_range(length, left, path)
        )
    keys = _keys(_take(left, path + "#", str, "a list of keys"), path)
    return {key: _unflatten_value(args[1], f"{path}.{i}", left) for i, key in enumerate(keys)}


def _keys(text: str, path: str) -> list[str]:
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list) or not all(isinstance(key, str) and _is_unicode(key) for key in keys):
        raise InvalidMessage(path, "a list of keys", _shown(text))
    if len(set(keys)) < len(keys):
        raise InvalidMessage(path, "different keys", _shown(text))
    return keys


def _texts(text: str, path: str) -> tuple[str, ...]:
    try:
        texts = json.loads(text)
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(item, str) and _is_unicode(item) for item in texts):
        raise InvalidMessage(path, "a list of texts", _shown(text))
    if len(texts) <= _LONG:
        raise InvalidMessage(path, f"more than {_LONG} texts in one entry", f"{len(texts)}")
    return tuple(texts)


def _checked_range(length: int, left: Payload, path: str) -> Iterator[int]:
    # A length that the payload cannot hold is refused before anything is allocated for it.
    if not 0 <= length <= len(left) + 1:
        raise InvalidMessage(path, f"a length up to {len(left)}", _shown(length))
    return iter(range(length))


def _take(left: Payload, path: str, kind: type[T], expected: str) -> T:
    if path not in left:
        raise InvalidMessage(path.removesuffix("#"), expected, "nothing")
    item = left.pop(path)
    if type(item) is not kind:
        raise InvalidMessage(path.removesuffix("#"), expected, _kind(item))
    return item


def _take_scalar(left: Payload, path: str, kind: Any) -> Any:
    if path not in left:
        raise InvalidMessage(path, kind.__name__, "nothing")
    item = left.pop(path)
    # Settings may be written as 1 where a float is expected.
    if type(item) is not kind and not (kind is float and type(item) is int):
        raise InvalidMessage(path, kind.__name__, _kind(item))
    if type(item) is int and not _MIN_INT <= item <= _MAX_INT:
        raise InvalidMessage(path, "an integer from -2^63 to 2^63 - 1", f"one of {item.bit_length()} bits")
    if kind is float and not math.isfinite(item):
        raise InvalidMessage(path, "a finite number", str(item))
    if kind is str and not _is_unicode(item):
        raise InvalidMessage(path, "Unicode text", _shown(item))
    return float(item) if kind is float else item


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold the text: JSON can contain lone surrogates, which UTF-8 cannot."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _take_array(left: Payload, path: str) -> np.ndarray:
    if path not in left:
        raise InvalidMessage(path, "an array", "nothing")
    item = left.pop(path)
    if not isinstance(item, np.ndarray) or item.dtype.kind not in "biuf":
        raise InvalidMessage(path, "an array of numbers", _kind(item))
    # One fast pass: a sum is finite only if all entries are. Huge finite entries can also make it infinite;
    # the slower second look tells the two cases apart.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = item.dtype.kind == "f" and not np.isfinite(item.sum())
    if suspicious and not np.isfinite(item).all():
        bad = int(np.argmin(np.isfinite(item.reshape(-1))))
        raise InvalidMessage(path, "finite numbers", f"{item.reshape(-1)[bad]} at position {bad}")
    return item
