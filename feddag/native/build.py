# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels, for setup.py and for `python -m feddag.native.build` in a working copy.

This file imports only the standard library: setup.py loads it before other packages are installed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
COMMON_FLAGS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi"]
# The compiler may fuse multiply-adds and ignore traps and errno. It may not reorder sums or ignore NaN.
FLOAT_FLAGS = ["-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
SANITIZE_FLAGS = [
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]

# Instruction set -> (lanes, compiler flags). src/isas.h checks whether a processor can run it.
X86 = {
    "avx512": (
        16,
        ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"],
    ),
    "avx2": (8, ["-mavx2", "-mfma"]),
}
EVERYWHERE: dict[str, tuple[int, list[str]]] = {"generic": (4, [])}
# 16 lanes without AVX-512: the tests run the 16-lane code on every machine. It is slow and not installed.
FOR_TESTS: dict[str, tuple[int, list[str]]] = {"generic16": (16, ["-O1"])}


class BuildError(Exception):
    """The kernels could not be compiled; the message gives the reason."""


def instruction_sets(for_tests: bool = True) -> dict[str, tuple[int, list[str]]]:
    """The instruction sets to compile for this kind of processor, with lanes and flags."""
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return (X86 if is_x86 else {}) | EVERYWHERE | (FOR_TESTS if for_tests else {})


def find_compiler() -> str:
    """The C++ compiler: $CXX, or the first of c++, g++ and clang++ that is installed."""
    for name in [os.environ.get("CXX", ""), "c++", "g++", "clang++"]:
        if name and shutil.which(name.split()[0]):
            return name
    raise BuildError("no C++ compiler was found (looked for $CXX, c++, g++ and clang++)")


def run(command: list[str]) -> None:
    """Run one compiler command; if it fails, the error message contains what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    if done.stderr.strip():
        print(done.stderr.strip(), file=sys.stderr)


def compile_library(target: Path, *, sanitize: bool = False, for_tests: bool = False) -> None:
    """Compile all sources into the shared library `target`; `for_tests` adds `generic16`."""
    compiler = find_compiler().split()
    optimise = SANITIZE_FLAGS if sanitize else ["-O3"]
    flags = [*optimise, *COMMON_FLAGS, *FLOAT_FLAGS, *(["-DFEDDAG_TEST_LANES"] if for_tests else [])]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs: list[tuple[Path, list[str]]] = []
        for isa, (lanes, isa_flags) in instruction_sets(for_tests).items():
            defines = [f"-DFEDDAG_ISA={isa}", f"-DFEDDAG_LANES={lanes}"]
            jobs.append(
                (Path(folder) / f"kernels_{isa}.o", [*isa_flags, *defines, str(SOURCES / "kernels.cpp")])
            )
        for name in ["network", "api"]:
            jobs.append((Path(folder) / f"{name}.o", [str(SOURCES / f"{name}.cpp")]))
        list(pool.map(lambda job: run([*compiler, *flags, *job[1], "-c", "-o", str(job[0])]), jobs))
        target.parent.mkdir(parents=True, exist_ok=True)
        objects = [str(path) for path, _ in jobs]
        unfinished = target.with_name(target.name + ".new")
        run([*compiler, *flags, "-shared", *objects, "-o", str(unfinished)])
        unfinished.replace(target)  # a process that uses the old library keeps it


def main() -> None:
    """Build the kernels inside the package folder, for development."""
    parser = argparse.ArgumentParser(prog="python -m feddag.native.build", description=main.__doc__)
    parser.add_argument(
        "--sanitize", action="store_true", help="with AddressSanitizer and UBSan (see tests/native)"
    )
    default = Path(__file__).parent / f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
    parser.add_argument("--output", type=Path, default=default, help="the library to write")
    arguments = parser.parse_args()
    try:
        compile_library(arguments.output, sanitize=arguments.sanitize, for_tests=True)
    except BuildError as error:
        sys.exit(f"The native trainer was not built: {error}")
    print(arguments.output)


if __name__ == "__main__":
    main()
