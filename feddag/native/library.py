# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the compiled kernels and mirrors the C++ structures for ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path

FORCE_ISA = "FEDDAG_NATIVE_ISA"  # environment: the instruction set to use instead of the best one
LIBRARY = "FEDDAG_NATIVE_LIBRARY"  # environment: another build of the library (the sanitizer's)


class Unavailable(Exception):
    """The native trainer cannot run here; the text says why."""


class StageSpec(ctypes.Structure):
    """src/network.h, StageSpec."""

    _fields_ = [
        *(
            (name, c_int64)
            for name in ["branch", "convolution", "outputs", "kernel_h", "kernel_w", "pad_h", "pad_w"]
        ),
        *((name, c_int64) for name in ["pool_h", "pool_w", "relu", "weight", "bias"]),
        ("dropout", c_double),
    ]


class NetworkSpec(ctypes.Structure):
    """src/network.h, NetworkSpec."""

    _fields_ = [
        (name, c_int64)
        for name in [
            *["channels", "height", "width", "branches", "stages"],
            *["classes", "head_weight", "head_bias", "parameters"],
        ]
    ]


class Inputs(ctypes.Structure):
    """src/network.h, Inputs."""

    _fields_ = [("x", c_void_p), ("bytes", c_int64), ("table", c_void_p), ("features", c_void_p * 2)]


class Task(ctypes.Structure):
    """src/network.h, Task."""

    _fields_ = [
        *((name, c_void_p) for name in ["samples", "starts", "labels", "weights", "center"]),
        *((name, c_double) for name in ["lr", "momentum", "weight_decay", "proximal"]),
        ("train_branch", c_int64 * 2),
        ("train_head", c_int64),
        ("seed", c_uint64),
    ]


_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "feddag_isa_count": (c_int, []),
    "feddag_isa_name": (c_char_p, [c_int]),
    "feddag_isa_lanes": (c_int, [c_int]),
    "feddag_isa_usable": (c_int, [c_int]),
    "feddag_sizes": (None, [POINTER(c_int64)]),
    "feddag_open": (c_void_p, [POINTER(NetworkSpec), POINTER(StageSpec), c_int, c_int, c_int]),
    "feddag_close": (None, [c_void_p]),
    "feddag_pack": (None, [c_void_p, c_void_p]),
    "feddag_unpack": (None, [c_void_p, c_void_p]),
    "feddag_train": (
        c_int64,
        [c_void_p, POINTER(Inputs), POINTER(Task), c_int64, c_int64, c_double, c_void_p],
    ),
    "feddag_gradient": (c_double, [c_void_p, POINTER(Inputs), POINTER(Task), c_int64, c_void_p]),
    "feddag_forward": (None, [c_void_p, POINTER(Inputs), c_int64, c_int64, c_int, c_void_p]),
    "feddag_philox": (None, [c_void_p, c_uint64, c_void_p]),
    "feddag_dropout_scales": (None, [c_uint64, c_uint32, c_uint32, c_uint32, c_double, c_int, c_void_p]),
}


@functools.cache
def _load() -> ctypes.CDLL | str:
    """The library, or the reason why there is none."""
    folder = Path(__file__).parent
    forced = os.environ.get(LIBRARY)
    found = (
        [Path(forced)]
        if forced
        else sorted(folder.glob("_kernels*.so")) + sorted(folder.glob("_kernels*.dylib"))
    )
    if not found:
        return (
            "the native kernels are not built: install feddag where there is a C++ compiler, "
            "or run `python -m feddag.native.build` in a working copy"
        )
    try:
        library = ctypes.CDLL(str(found[0]))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return f"the native kernels in {found[0].name} cannot be loaded ({error}); build them again"
    sizes = (c_int64 * 4)()
    library.feddag_sizes(sizes)
    if list(sizes) != [ctypes.sizeof(mirror) for mirror in (StageSpec, NetworkSpec, Inputs, Task)]:
        return f"the native kernels in {found[0].name} belong to another version of feddag; build them again"
    return library


def isas() -> list[str]:
    """Instruction sets this processor can run, best first; `generic16` is there in development builds."""
    library = load()
    count = library.feddag_isa_count()
    return [library.feddag_isa_name(i).decode() for i in range(count) if library.feddag_isa_usable(i)]


def why_not() -> str:
    """Why the native trainer cannot run here; empty when it can."""
    loaded = _load()
    if isinstance(loaded, str):
        return loaded
    forced = os.environ.get(FORCE_ISA)
    if forced and forced not in isas():
        return f"{FORCE_ISA}={forced} is not among what this processor can run: {', '.join(isas())}"
    return ""


def available() -> bool:
    """Whether the native trainer can run here."""
    return not why_not()


def load() -> ctypes.CDLL:
    """The library; raises `Unavailable` with the reason."""
    loaded = _load()
    if isinstance(loaded, str):
        raise Unavailable(loaded)
    return loaded


def isa() -> str:
    """The instruction set in use: the best this processor has, or the one forced by the environment."""
    if reason := why_not():
        raise Unavailable(reason)
    return os.environ.get(FORCE_ISA) or isas()[0]


def isa_number(name: str) -> int:
    """The library's number of an instruction set."""
    library = load()
    return [library.feddag_isa_name(i).decode() for i in range(library.feddag_isa_count())].index(name)
