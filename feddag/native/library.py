# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the compiled kernels, and declares the C++ structures for ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path

FORCE_ISA = "FEDDAG_NATIVE_ISA"  # environment variable: use this instruction set, not the best one
LIBRARY = "FEDDAG_NATIVE_LIBRARY"  # environment variable: load this library file


class Unavailable(Exception):
    """The native trainer cannot run here; the message gives the reason."""


class StageSpec(ctypes.Structure):
    """The structure StageSpec in src/network.h."""

    _fields_ = [
        *(
            (name, c_int64)
            for name in ["branch", "convolution", "outputs", "kernel_h", "kernel_w", "pad_h", "pad_w"]
        ),
        *((name, c_int64) for name in ["pool_h", "pool_w", "relu", "weight", "bias"]),
        ("dropout", c_double),
    ]


class NetworkSpec(ctypes.Structure):
    """The structure NetworkSpec in src/network.h."""

    _fields_ = [
        (name, c_int64)
        for name in [
            *["channels", "height", "width", "branches", "stages"],
            *["classes", "head_weight", "head_bias", "parameters"],
        ]
    ]


class Inputs(ctypes.Structure):
    """The structure Inputs in src/network.h."""

    _fields_ = [("x", c_void_p), ("bytes", c_int64), ("table", c_void_p), ("features", c_void_p * 2)]


class TrainingJob(ctypes.Structure):
    """The structure TrainingJob in src/network.h."""

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
    "feddag_isa_usable": (c_int, [c_int]),
    "feddag_sizes": (None, [POINTER(c_int64)]),
    "feddag_open": (c_void_p, [POINTER(NetworkSpec), POINTER(StageSpec), c_int, c_int, c_int]),
    "feddag_close": (None, [c_void_p]),
    "feddag_pack": (None, [c_void_p, c_void_p]),
    "feddag_unpack": (None, [c_void_p, c_void_p]),
    "feddag_train": (
        c_int64,
        [c_void_p, POINTER(Inputs), POINTER(TrainingJob), c_int64, c_int64, c_double, c_void_p],
    ),
    "feddag_gradient": (c_double, [c_void_p, POINTER(Inputs), POINTER(TrainingJob), c_int64, c_void_p]),
    "feddag_forward": (None, [c_void_p, POINTER(Inputs), c_int64, c_int64, c_int, c_void_p]),
    "feddag_philox": (None, [c_void_p, c_uint64, c_void_p]),
    "feddag_dropout_scales": (None, [c_uint64, c_uint32, c_uint32, c_uint32, c_double, c_int, c_void_p]),
}


@functools.cache
def _load() -> ctypes.CDLL | str:
    """The library, or the reason why it cannot be loaded."""
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
    if list(sizes) != [ctypes.sizeof(mirror) for mirror in (StageSpec, NetworkSpec, Inputs, TrainingJob)]:
        return f"the native kernels in {found[0].name} belong to another version of feddag; build them again"
    return library


def isas() -> list[str]:
    """Instruction sets that this processor can run, best first; development builds have `generic16`."""
    library = load()
    count = library.feddag_isa_count()
    return [library.feddag_isa_name(i).decode() for i in range(count) if library.feddag_isa_usable(i)]


def why_not() -> str:
    """The reason why the native trainer cannot run here; empty if it can."""
    loaded = _load()
    if isinstance(loaded, str):
        return loaded
    forced = os.environ.get(FORCE_ISA)
    if forced and forced not in isas():
        return f"{FORCE_ISA}={forced} is not among what this processor can run: {', '.join(isas())}"
    return ""


def available() -> bool:
    """True if the native trainer can run here."""
    return not why_not()


def load() -> ctypes.CDLL:
    """The library; raises `Unavailable` if it cannot be loaded."""
    loaded = _load()
    if isinstance(loaded, str):
        raise Unavailable(loaded)
    return loaded


def isa() -> str:
    """The instruction set in use: the best of this processor, or the one that FEDDAG_NATIVE_ISA names."""
    if reason := why_not():
        raise Unavailable(reason)
    return os.environ.get(FORCE_ISA) or isas()[0]


def isa_number(name: str) -> int:
    """The index of an instruction set in the library."""
    library = load()
    return [library.feddag_isa_name(i).decode() for i in range(library.feddag_isa_count())].index(name)
