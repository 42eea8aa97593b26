# SPDX-License-Identifier: Apache-2.0
"""Shakespeare by speaker: guess the next character (the text is in the public domain)."""

import gzip
import re
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.examples import Scaling
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset
from feddag.data.files.download import Download
from feddag.data.loading import Content, Layout, Samples, find, load_found
from feddag.data.names import allowed_names

WINDOW = 80  # characters that are shown before the one to guess
STEP = 4  # characters between the starts of two windows
TEST_SHARE = 0.2
LEAST = 5 * WINDOW  # speakers with fewer characters are left out
TEXT = Download(
    url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    name="tinyshakespeare/input.txt",
    size=1_115_394,
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
SPEECH = re.compile(r"(?:^|\n\n)([A-Z][^\n:]*):\n")


def _windows(codes: np.ndarray) -> np.ndarray:
    """Windows of the characters to look at and the one to guess."""
    if len(codes) <= WINDOW:
        return np.empty((0, WINDOW + 1), dtype=np.uint8)
    return np.lib.stride_tricks.sliding_window_view(codes, WINDOW + 1)[::STEP]


def read_text(folder: Path) -> Content:
    """Speeches joined by speaker; the last fifth of what a speaker says is for testing."""
    path = next(p for p in (folder / "input.txt.gz", folder / "input.txt") if p.is_file())
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    parts = SPEECH.split(text)
    if len(parts) < 3:
        raise InvalidInput(f"{path}: no speeches ('SPEAKER:' on a line of its own) found")
    speeches: dict[str, list[str]] = {}
    for speaker, speech in zip(parts[1::2], parts[2::2], strict=True):
        speeches.setdefault(speaker.strip(), []).append(speech.strip())
    characters = sorted(set(text))
    code = {character: i for i, character in enumerate(characters)}
    joined = {speaker: "\n".join(lines) for speaker, lines in speeches.items()}
    speakers = sorted(speaker for speaker, said in joined.items() if len(said) >= LEAST)
    windows: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for speaker in speakers:
        codes = np.array([code[character] for character in joined[speaker]], dtype=np.uint8)
        cut = round((1 - TEST_SHARE) * len(codes))
        windows["train"].append(_windows(codes[:cut]))
        windows["test"].append(_windows(codes[cut:]))
    samples = {}
    for split, per_speaker in windows.items():
        owner = np.repeat(np.arange(len(speakers)), [len(w) for w in per_speaker])
        samples[split] = Samples(
            (w[:, :-1] for w in per_speaker), np.concatenate([w[:, -1] for w in per_speaker]), owner=owner
        )
    return Content(
        train=samples["train"],
        test=samples["test"],
        shape=(WINDOW,),
        class_names=[repr(character)[1:-1] for character in characters],
        owner_names=allowed_names(speakers),
        complete=len(text) == 1_115_394,
        notes={
            "windows": f"{WINDOW} characters, every {STEP}th; speakers with fewer than {LEAST} are left out",
            "test split": "ours: the last 20% of what each speaker says",
        },
    )


LAYOUTS = (
    Layout("shakespeare", ("input.txt.gz",), read_text),
    Layout("tinyshakespeare", ("input.txt",), read_text),
)


def load(config: DataConfig) -> Dataset:
    """Windows of character codes as (n, 80) uint8; every speaker is a natural client."""
    return load_found(config, find(config, LAYOUTS, downloads=[TEXT]), Scaling())
