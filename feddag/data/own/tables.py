# SPDX-License-Identifier: Apache-2.0
"""Reading .csv and .parquet files as named columns; nothing is decided here about what a column means."""

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.text import listed
from feddag.data.files.guard import MemoryBudget, require_plain_file

TABLES = (".csv", ".parquet")
MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"})
LONGEST_LINE = 1 << 24  # characters
LONGEST_NAME = 500  # characters of a class or a client
LOOK_AT = 1 << 16  # bytes at the start of a .csv file that must look like text
CSV_FACTOR = 8  # bytes of memory per byte of a .csv file
PARQUET_CELL = 32  # bytes of memory per cell of a .parquet file


@dataclass(frozen=True)
class Column:
    """The cells of one column: numbers, and the texts of all cells if at least one cell is not a number."""

    numbers: np.ndarray  # (n,) float64; NaN where the cell is missing or a text
    texts: np.ndarray | None = None  # (n,) str objects; "" where the cell is missing
    strange: str = ""  # a type that is neither number nor text, such as timestamp[us]

    @property
    def missing(self) -> np.ndarray:
        """Mask of the cells that hold nothing."""
        return np.isnan(self.numbers) if self.texts is None else self.texts == ""

    @property
    def is_text(self) -> np.ndarray:
        """Mask of the cells that hold something that is not a number."""
        if self.texts is None:
            return np.zeros(len(self.numbers), dtype=bool)
        return np.isnan(self.numbers) & (self.texts != "")


@dataclass(frozen=True)
class Table:
    """One file: its name and its columns."""

    name: str
    columns: dict[str, Column]

    def column(self, name: str, role: str) -> Column:
        """The label or the client column."""
        if name not in self.columns:
            hint = ""
            if len(self.columns) == 1 and any(mark in next(iter(self.columns)) for mark in ";\t"):
                hint = "; columns must be separated by commas"
            raise InvalidInput(
                f"{self.name}: no {role} column '{name}'; it has {listed(list(self.columns), 20)}{hint}"
            )
        found = self.columns[name]
        if found.strange:
            raise InvalidInput(
                f"{self.name}: {role} column '{name}' holds {found.strange}; expected numbers or texts"
            )
        if found.texts is not None and (longest := max(map(len, found.texts))) > LONGEST_NAME:
            raise InvalidInput(
                f"{self.name}: {role} column '{name}' holds a text of {longest:,} characters; expected names"
            )
        return found


def read_table(
    path: Path, budget: MemoryBudget, as_text: str | None = None, only: Collection[str] | None = None
) -> Table:
    """Read a file; column `as_text` keeps its texts even if all are numbers, `only` names what is needed."""
    size = require_plain_file(path, path.name)
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path, budget, size, as_text, only)
    return _read_csv(path, budget, size, as_text, only)


# -- CSV -----------------------------------------------------------------------------------------------


def _read_csv(
    path: Path, budget: MemoryBudget, size: int, as_text: str | None, only: Collection[str] | None
) -> Table:
    budget.take(path.name, CSV_FACTOR * size)
    try:
        with path.open("rb") as raw:
            if b"\0" in raw.read(LOOK_AT):
                raise InvalidInput(f"{path.name}: not a .csv file that can be read (it is not plain text)")
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, rows = _csv_rows(path.name, file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path.name}: not a .csv file that can be read ({error})") from error
    columns = {
        name: column_of([row[i].strip() for row in rows], keep_texts=name == as_text)
        for i, name in enumerate(header)
        if only is None or name in only
    }
    return Table(path.name, columns)


def _csv_rows(name: str, file: IO[str]) -> tuple[list[str], list[list[str]]]:
    reader = csv.reader(_short_lines(name, file))
    header = [cell.strip() for cell in next(reader, [])]
    rows = []
    for row in reader:
        if not row:
            continue  # an empty line
        if len(row) != len(header):
            raise InvalidInput(
                f"{name}, line {reader.line_num}: {len(header)} values expected, got {len(row)}"
            )
        rows.append(row)
    if not rows:
        raise InvalidInput(f"{name}: expected a line of column names and at least one row")
    # Spreadsheets often add a last column that has neither a name nor values.
    while header and not header[-1] and not any(row[len(header) - 1].strip() for row in rows):
        header.pop()
    refuse_equal_names(name, header)
    return header, rows


def _short_lines(name: str, file: IO[str]) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise InvalidInput(
                f"{name}: a line has more than {LONGEST_LINE:,} characters; is it a .csv file?"
            )
        yield line


def refuse_equal_names(name: str, header: Sequence[str]) -> None:
    """Columns with equal names are refused: which one is meant cannot be known."""
    twice = [f"'{column}'" for column, number in Counter(header).items() if number > 1]
    if twice:
        raise InvalidInput(f"{name}: more than one column is named {listed(twice)}")


def column_of(cells: Sequence[str], keep_texts: bool = False) -> Column:
    """Cells as numbers where they are numbers, and as texts if any cell is not."""
    numbers = np.full(len(cells), np.nan)
    has_text = keep_texts
    for i, cell in enumerate(cells):
        if cell in MISSING:
            continue
        try:
            if "_" in cell:  # Python reads 1_000 as a number, no spreadsheet does
                raise ValueError
            numbers[i] = float(cell)
        except ValueError:
            has_text = True
    if not has_text:
        return Column(numbers)
    texts = np.empty(len(cells), dtype=object)
    texts[:] = ["" if cell in MISSING else cell for cell in cells]
    return Column(numbers, texts)


# -- Parquet -------------------------------------------------------------------------------------------


def _read_parquet(
    path: Path, budget: MemoryBudget, size: int, as_text: str | None, only: Collection[str] | None
) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidInput(
            f"{path.name}: reading .parquet needs pyarrow (pip install 'feddag[data]')"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            schema, facts = file.schema_arrow, file.metadata
            refuse_equal_names(path.name, schema.names)
            names = [name for name in schema.names if only is None or name in only]
            claimed = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
            budget.take(path.name, max(PARQUET_CELL * facts.num_rows * len(names), claimed), size)
            plain = [name for name in names if not _strange_type(pyarrow, schema.field(name).type)]
        is_text = pyarrow.types.is_string, pyarrow.types.is_large_string
        texts = [name for name in plain if any(test(schema.field(name).type) for test in is_text)]
        # Texts stay encoded, so that a long text that occurs in every row is in memory once.
        table = parquet.read_table(path, columns=plain, read_dictionary=texts, partitioning=None)
        columns = {name: _arrow_column(pyarrow, table.column(name), name == as_text) for name in plain}
    except InvalidInput:
        raise
    except Exception as error:  # damaged files make pyarrow raise many types of error
        raise InvalidInput(f"{path.name}: not a .parquet file that can be read ({error})") from error
    if facts.num_rows == 0:
        raise InvalidInput(f"{path.name}: has no rows")
    for name in names:
        if name not in columns:
            kind = str(schema.field(name).type)
            columns[name] = Column(np.full(facts.num_rows, np.nan), strange=kind)
    return Table(path.name, {name: columns[name] for name in names})


def _strange_type(pyarrow: Any, kind: Any) -> bool:
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = ("boolean", "integer", "floating", "decimal", "string", "large_string", "null")
    return not any(getattr(types, f"is_{test}")(kind) for test in tests)


def _arrow_column(pyarrow: Any, column: Any, keep_texts: bool) -> Column:
    joined = column.combine_chunks()
    if isinstance(joined, pyarrow.ChunkedArray):
        joined = pyarrow.concat_arrays(joined.unify_dictionaries().chunks)
    kind = joined.type
    if pyarrow.types.is_dictionary(kind):
        values = _arrow_column(pyarrow, pyarrow.chunked_array([joined.dictionary]), keep_texts)
        codes = joined.indices.cast(pyarrow.int64()).fill_null(len(values.numbers)).to_numpy()
        numbers = np.append(values.numbers, np.nan)[codes]
        return Column(numbers, None if values.texts is None else np.append(values.texts, "")[codes])
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return column_of(["" if text is None else text.strip() for text in joined.to_pylist()], keep_texts)
    if pyarrow.types.is_null(kind):
        return Column(np.full(len(joined), np.nan))
    numbers = joined.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    numbers = np.array(numbers, dtype=np.float64)
    if not keep_texts:
        return Column(numbers)
    texts = np.empty(len(numbers), dtype=object)
    texts[:] = ["" if value is None or value != value else _plain_text(value) for value in joined.to_pylist()]
    return Column(numbers, texts)


def _plain_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
