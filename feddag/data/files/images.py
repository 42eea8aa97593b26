# SPDX-License-Identifier: Apache-2.0
"""Reading images: atlases of tiles, and single files of any size."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from feddag.core.errors import InvalidInput
from feddag.data.files.guard import require_plain_file

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
# What a file with such a name may really be. Formats that start other programs (EPS) are not among them.
FORMATS = ("PNG", "JPEG", "BMP", "DIB", "WEBP", "GIF", "TIFF", "PPM")
CHUNK = 512
MOST_PIXELS = 1 << 27  # an image that claims to have more is refused before it is decoded
Image.MAX_IMAGE_PIXELS = MOST_PIXELS


def tiles(path: Path, size: int, number: int) -> np.ndarray:
    """The first `number` square tiles of an atlas, row by row, as uint8 (number, 3, size, size)."""
    atlas = _decoded(path, path.name)
    rows, columns = atlas.shape[0] // size, atlas.shape[1] // size
    if rows * columns < number:
        raise InvalidInput(f"{path}: {number} tiles of {size}×{size} expected, got {rows * columns}")
    cut = atlas[: rows * size, : columns * size].reshape(rows, size, columns, size, 3)
    return cut.transpose(0, 2, 4, 1, 3).reshape(rows * columns, 3, size, size)[:number]


def atlases(paths: Sequence[Path], size: int, number: int) -> Iterator[np.ndarray]:
    """Tiles of several atlases, one chunk per atlas; all but the last are full."""
    per_atlas = -(-number // len(paths))
    for i, path in enumerate(paths):
        yield tiles(path, size, min(per_atlas, number - i * per_atlas))


def resized(files: Sequence[Path], size: int) -> Iterator[np.ndarray]:
    """Image files as chunks of uint8 (n, 3, size, size); resizing does not keep the ratio of the sides."""
    for start in range(0, len(files), CHUNK):
        yield np.stack([picture(path, path.name, size) for path in files[start : start + CHUNK]])


def picture(source: Path | bytes, name: str, size: int | None, mode: str = "RGB") -> np.ndarray:
    """One image as uint8 (channels, height, width)."""
    pixels = _decoded(source, name, size, mode)
    return np.ascontiguousarray(np.moveaxis(pixels.reshape(*pixels.shape[:2], -1), -1, 0))


def image_header(path: Path, name: str) -> tuple[tuple[int, int], str]:
    """(height, width) and Pillow's mode of an image; no pixel is decoded."""
    with _opened(path, name) as image:
        return (image.height, image.width), image.mode


def _decoded(source: Path | bytes, name: str, size: int | None = None, mode: str = "RGB") -> np.ndarray:
    with _opened(source, name) as stored:
        if size is not None:
            # Large JPEGs are decoded at a fraction of their size.
            stored.draft(mode, (2 * size, 2 * size))
        image = stored if stored.mode == mode else stored.convert(mode)
        if size is not None and image.size != (size, size):
            image = image.resize((size, size), Image.Resampling.BICUBIC)
        return np.asarray(image)


@contextmanager
def _opened(source: Path | bytes, name: str) -> Iterator[Image.Image]:
    """An image whose header was read; every error inside the block becomes one sentence."""
    if isinstance(source, Path):
        require_plain_file(source, name)
    Image.init()  # Pillow knows only some formats before this
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the next check refuses instead
            found = Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
        with found as image:
            if image.width * image.height > MOST_PIXELS:
                raise InvalidInput(
                    f"{name}: {image.width:,}×{image.height:,} pixels are more than can be read "
                    f"({MOST_PIXELS:,})"
                )
            yield image
    except InvalidInput:
        raise
    except Exception as error:  # Pillow's decoders raise many types of error for damaged files
        raise InvalidInput(f"{name}: not an image that can be read ({error})") from error
