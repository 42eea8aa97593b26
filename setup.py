# SPDX-License-Identifier: Apache-2.0
"""Adds the native trainer's kernels to the build; everything else is in pyproject.toml.

They are optional: without a C++ compiler feddag installs all the same, says so here and at run time, and
trains with PyTorch.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("feddag") / "native"


def build_module() -> ModuleType:
    """feddag/native/build.py, loaded without importing feddag (its dependencies may not be there yet)."""
    spec = importlib.util.spec_from_file_location("feddag_native_build", NATIVE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildKernels(build_ext):
    """One shared library from several compilations, one per instruction set."""

    def build_extension(self, ext: Extension) -> None:
        """Compile, or say why there is no fast path."""
        build = build_module()
        try:
            build.compile_library(Path(self.get_ext_fullpath(ext.name)).resolve())
        except (build.BuildError, OSError) as error:
            reason = str(error).splitlines()[0]
            print(
                f"feddag: the native trainer is not built, training will use PyTorch ({reason})",
                file=sys.stderr,
            )

    def get_outputs(self) -> list[str]:
        """Only what was really built."""
        return [path for path in super().get_outputs() if Path(path).exists()]

    def copy_extensions_to_source(self) -> None:
        """For editable installs: nothing to copy where nothing was built."""
        built = [Path(self.build_lib) / self.get_ext_filename(ext.name) for ext in self.extensions]
        if all(path.exists() for path in built):
            super().copy_extensions_to_source()


setup(
    ext_modules=[
        Extension(
            "feddag.native._kernels",
            sources=[
                (NATIVE / "src" / name).as_posix() for name in ("kernels.cpp", "network.cpp", "api.cpp")
            ],
            depends=[path.as_posix() for path in sorted((NATIVE / "src").glob("*.h"))],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
)
