# SPDX-License-Identifier: Apache-2.0
"""Finding, choosing and building the kernels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from feddag import native
from feddag.native import build, library

SAY = "from feddag import native; print(native.available()); print(native.why_not())"


def say(**environment: str) -> list[str]:
    """What a fresh process says about the native trainer."""
    done = subprocess.run(
        [sys.executable, "-c", SAY],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", **environment},
    )
    return done.stdout.splitlines()


def test_a_missing_or_foreign_library_is_told(tmp_path: Path) -> None:
    foreign = tmp_path / "_kernels.so"
    foreign.write_bytes(b"not a library")
    for path in (tmp_path / "absent.so", foreign):
        available, reason = say(FEDDAG_NATIVE_LIBRARY=str(path))
        assert available == "False"
        assert f"{path.name} cannot be loaded" in reason
        assert "build them again" in reason


def test_the_best_instruction_set_is_taken_unless_another_is_forced(isa: str) -> None:
    assert native.isa() == isa
    assert "generic16" not in library.isas()[:1]


def test_an_instruction_set_the_processor_lacks_is_refused(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.FORCE_ISA, "abacus")
    assert not native.available()
    assert "FEDDAG_NATIVE_ISA=abacus is not among what this processor can run" in native.why_not()
    with pytest.raises(native.Unavailable, match="abacus"):
        native.isa()


def test_without_a_compiler_the_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler was found"):
        build.compile_library(tmp_path / "kernels.so")


def test_a_failing_compiler_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(build.BuildError, match="no such flag"):
        build.compile_library(tmp_path / "kernels.so")
    assert not (tmp_path / "kernels.so").exists()


@pytest.mark.skipif(not (shutil.which("c++") and shutil.which("nm")), reason="needs a C++ compiler and nm")
def test_kernels_share_no_symbol_which_the_linker_could_mix_up(tmp_path: Path) -> None:
    # A weak (inline) function compiled for AVX2 could replace its twin on the generic path.
    for isa, (lanes, flags) in build.instruction_sets().items():
        target = tmp_path / f"{isa}.o"
        defines = [f"-DFEDDAG_ISA={isa}", f"-DFEDDAG_LANES={lanes}", "-O0", *build.COMMON_FLAGS]
        source = str(build.SOURCES / "kernels.cpp")
        subprocess.run(["c++", *flags, *defines, "-c", source, "-o", str(target)], check=True)
        symbols = subprocess.run(["nm", str(target)], capture_output=True, text=True, check=True).stdout
        shared = [line.split()[-1] for line in symbols.splitlines() if line.split()[-2] in "TWVDRBu"]
        assert shared == [f"feddag_kernels_{isa}"]
