# SPDX-License-Identifier: Apache-2.0
"""Printing to any terminal: names are never read as rich's markup, and ASCII terminals get ASCII."""

from typing import IO, Any

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

from feddag.core.text import printable
from feddag.reporting.text import ascii_only


class EncodedStream:
    """A text stream that replaces every character which its encoding lacks, instead of failing."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write text; replace what cannot be encoded."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            text = ascii_only(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def safe_console(console: Console) -> Console:
    """The same console; on a stream that is not UTF-8 it no longer fails on characters such as ±."""
    stream = console.file
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
    if not encoding.startswith("utf") and not isinstance(stream, EncodedStream):
        console.file = EncodedStream(stream)  # type: ignore[assignment]
    return console


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print one line as it is: no markup, no extra colours, no extra line breaks."""
    line = printable(text)
    if console.options.ascii_only:
        line = ascii_only(line)
    console.print(Text(line, style=style or ""), highlight=False, soft_wrap=True)


class TextTable(Table):
    """A table of plain text without markup; in ASCII where the terminal needs it."""

    def __init__(self, title: str = "", **options: Any) -> None:
        super().__init__(title=_text(title) if title else None, title_justify="left", **options)

    def heading(self, text: str, justify: JustifyMethod = "left") -> None:
        """Add a column. Long cells continue on the next line, so nothing is cut off."""
        self.add_column(_text(text), justify=justify, overflow="fold")

    def line(self, *cells: str) -> None:
        """Add a row."""
        self.add_row(*map(_text, cells))

    def note(self, text: str) -> None:
        """Set the caption below the table."""
        self.caption = _text(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._in_ascii() if options.ascii_only else self
        yield from Table.__rich_console__(shown, console, options)

    def _in_ascii(self) -> "TextTable":
        looks = {"box": self.box, "pad_edge": self.pad_edge, "padding": self.padding}
        table = TextTable(
            _ascii(self.title), header_style=self.header_style, show_header=self.show_header, **looks
        )
        if self.caption:
            table.note(_ascii(self.caption))
        for column in self.columns:
            table.heading(_ascii(column.header), column.justify)
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            table.line(*map(_ascii, cells))
        return table


def _text(text: str) -> Text:
    return Text(printable(text))


def _ascii(text: Any) -> str:
    return ascii_only(str(text or ""))
