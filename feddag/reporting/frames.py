# SPDX-License-Identifier: Apache-2.0
"""Rows as pandas data frames. pandas is an extra: everything else works without it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feddag.core.errors import InvalidInput

if TYPE_CHECKING:
    from pandas import DataFrame


def frame_of(rows: Sequence[Mapping[str, Any]], name: str, texts: Sequence[str] = ()) -> "DataFrame":
    """A data frame of rows; columns are numbers where all their values are, except those named `texts`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InvalidInput(
            f"'{name}' as a data frame needs pandas (pip install 'feddag[frames]'); plain rows are in "
            f"'{name.removesuffix('s')}_rows'"
        ) from error
    frame = pd.DataFrame(list(rows))
    for column in frame.columns:
        if column not in texts:
            frame[column] = _numbers_if_all_are(pd, frame[column])
    return frame


def _numbers_if_all_are(pd: Any, column: Any) -> Any:
    try:
        return pd.to_numeric(column.replace("", None))
    except (ValueError, TypeError):
        return column
