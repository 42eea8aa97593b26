# SPDX-License-Identifier: Apache-2.0
"""Light, colour, shape and compression."""

from collections.abc import Callable, Sequence
from io import BytesIO

import numpy as np
import scipy
from PIL import Image

Generators = Sequence[np.random.Generator]


def contrast(x: np.ndarray, factor: float, generators: Generators) -> np.ndarray:
    """Values move towards the mean of their channel."""
    # Image by image: numpy adds in another order over a batch, and the published bits depend on it.
    means = np.stack([image.mean(axis=(0, 1), keepdims=True) for image in x])
    return (x - means) * factor + means


def brightness(x: np.ndarray, amount: float, generators: Generators) -> np.ndarray:
    """Brighter: the value in (hue, saturation, value) is increased."""
    hsv = to_hsv(x)
    hsv[..., 2] = np.clip(hsv[..., 2] + amount, 0, 1)
    return to_rgb(hsv)


def saturate(x: np.ndarray, constants: tuple[float, float], generators: Generators) -> np.ndarray:
    """Stronger or weaker colours: the saturation in (hue, saturation, value) is changed."""
    factor, amount = constants
    hsv = to_hsv(x)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + amount, 0, 1)
    return to_rgb(hsv)


def to_hsv(x: np.ndarray) -> np.ndarray:
    """Red, green, blue → hue, saturation, value, all in [0, 1]."""
    red, green, blue = (np.ascontiguousarray(x[..., channel]) for channel in range(3))
    value = np.maximum(np.maximum(red, green), blue)
    spread = value - np.minimum(np.minimum(red, green), blue)
    with np.errstate(invalid="ignore", divide="ignore"):
        saturation = np.where(spread == 0, 0.0, spread / value)
        hue = np.where(red == value, (green - blue) / spread, 0.0)
        hue = np.where(green == value, 2.0 + (blue - red) / spread, hue)
        hue = np.where(blue == value, 4.0 + (red - green) / spread, hue)
    hue = (hue / 6.0) % 1.0
    return np.stack([np.where(spread == 0, 0.0, hue), saturation, value], axis=-1)


def to_rgb(hsv: np.ndarray) -> np.ndarray:
    """Hue, saturation, value → red, green, blue."""
    hue, saturation, value = hsv[..., 0], hsv[..., 1], hsv[..., 2]
    sector = np.floor(hue * 6)
    f = hue * 6 - sector
    p = value * (1 - saturation)
    q = value * (1 - f * saturation)
    t = value * (1 - (1 - f) * saturation)
    sector = sector.astype(np.int8) % 6
    out = np.empty_like(hsv)
    colours = [(value, t, p), (q, value, p), (p, value, t), (p, q, value), (t, p, value), (value, p, q)]
    for number, colour in enumerate(colours):
        here = sector == number
        for channel, values in enumerate(colour):
            out[..., channel][here] = values[here]
    return out


def pixelate(x: np.ndarray, factor: float, generators: Generators) -> np.ndarray:
    """Fewer pixels, enlarged again."""
    height, width = x.shape[1:3]
    small = (int(width * factor), int(height * factor))
    return _through_pillow(
        x,
        lambda image: image.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.BOX),
    )


def jpeg_compression(x: np.ndarray, quality: int, generators: Generators) -> np.ndarray:
    """Stored as JPEG of low quality."""

    def compress(image: Image.Image) -> Image.Image:
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _through_pillow(x, compress)


def _through_pillow(x: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    pixels = np.rint(x * 255).astype(np.uint8)
    out = np.stack([np.asarray(change(Image.fromarray(image))) for image in pixels])
    return (out + 0.5) / 255  # half a step is added, so that the later cast gives the same pixels


def elastic_transform(
    x: np.ndarray, constants: tuple[float, float, float], generators: Generators
) -> np.ndarray:
    """A random affine map and a smooth random displacement; lengths are parts of the image size."""
    height, width = x.shape[1:3]
    size = min(height, width)
    strength, sigma, affine = (c * size for c in constants)
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    centre, arm = np.array([height // 2, width // 2]), size // 3
    corners = np.array([centre + arm, [centre[0] + arm, centre[1] - arm], centre - arm], dtype=float)
    out = np.empty_like(x)
    for image, g, target in zip(x, generators, out, strict=True):
        moved = corners + g.uniform(-affine, affine, size=(3, 2))
        # The map back from the moved corners to where the pixels come from.
        back = np.linalg.solve(np.column_stack([moved, np.ones(3)]), corners)
        noise = g.uniform(-1, 1, size=(2, height, width))
        shift = strength * scipy.ndimage.gaussian_filter(
            noise, sigma=(0, sigma, sigma), mode="reflect", truncate=3
        )
        at = np.stack([rows + shift[0], columns + shift[1], np.ones((height, width))], axis=-1) @ back
        where = [at[..., 0], at[..., 1]]
        for channel in range(x.shape[-1]):
            target[..., channel] = scipy.ndimage.map_coordinates(
                image[..., channel], where, order=1, mode="mirror"
            )
    return out
