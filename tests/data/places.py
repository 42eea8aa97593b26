# SPDX-License-Identifier: Apache-2.0
"""Where tests find real data, and the sentence that says what to install where it is not there."""

import os
from pathlib import Path

import pytest

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def has(*parts: str) -> bool:
    folder = os.environ.get("FEDDAG_DATA")
    return bool(folder) and Path(folder).joinpath(*parts).exists()


def needs(*parts: str) -> pytest.MarkDecorator:
    """Skip unless FEDDAG_DATA has this file."""
    return pytest.mark.skipif(
        not has(*parts), reason=f"set FEDDAG_DATA to a folder that has {'/'.join(parts)}"
    )


needs_debian = pytest.mark.skipif(
    not DEBIAN.is_dir(), reason="install Debian's package dataset-fashion-mnist"
)
