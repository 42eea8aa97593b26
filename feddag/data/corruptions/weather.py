# SPDX-License-Identifier: Apache-2.0
"""Weather: snow, frost, fog, and what splashes against the lens."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import scipy

from feddag.core.seeds import Seed
from feddag.data.corruptions.blur import magnify, trace

Generators = Sequence[np.random.Generator]
GREY = np.array([0.299, 0.587, 0.114])
WATER, MUD = np.array([175, 238, 238]) / 255, np.array([63, 42, 20]) / 255


def snow(x: np.ndarray, constants: tuple[float, ...], generators: Generators) -> np.ndarray:
    """Falling flakes leave traces, and the scene turns paler."""
    mean, deviation, zoom, threshold, radius, sigma, keep = constants
    flakes = np.stack([g.normal(mean, deviation, size=x.shape[1:3]) for g in generators])[..., None]
    flakes = magnify(flakes, zoom)
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    flakes = trace(flakes, radius, sigma, [g.uniform(-135, -45) for g in generators])
    grey = (x * GREY).sum(axis=-1, keepdims=True)
    pale = np.maximum(x, grey * 1.5 + 0.5)
    return keep * x + (1 - keep) * pale + flakes + flakes[:, ::-1, ::-1]


def frost(x: np.ndarray, constants: tuple[float, float], generators: Generators) -> np.ndarray:
    """Ice crystals on the lens, cut from one of five textures."""
    keep, strength = constants
    height, width = x.shape[1:3]
    size = max(128, 2 * max(height, width))
    out = keep * x
    for image, g in zip(out, generators, strict=True):
        texture = frost_texture(int(g.integers(5)), size)
        top, left = g.integers(size - height), g.integers(size - width)
        image += strength * texture[top : top + height, left : left + width]
    return out


@cache
def frost_texture(number: int, size: int) -> np.ndarray:
    """A drawing instead of the photographs of frost: bluish needles along the borders of random cells."""
    rng = (Seed(0) / "frost" / number / size).numpy()
    brightness = 0.35 * plasma(size, 2.0, [rng])[0, :size, :size]
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), axis=-1).astype(float)
    for cells, weight in ((size // 3, 0.5), (size, 0.35)):
        points = rng.uniform(0, size, size=(cells, 2))
        angle = rng.uniform(0, np.pi)
        stretch = np.array([[np.cos(angle), np.sin(angle)], [-2.5 * np.sin(angle), 2.5 * np.cos(angle)]])
        nearest = np.sort(
            np.linalg.norm((grid[:, :, None] - points[None, None]) @ stretch.T, axis=-1), axis=-1
        )
        brightness += weight * np.exp(-(nearest[..., 1] - nearest[..., 0]) / 3.0)
    return np.clip(brightness, 0, 1)[..., None] * np.array([0.86, 0.95, 1.0])


def fog(x: np.ndarray, constants: tuple[float, float], generators: Generators) -> np.ndarray:
    """Clouds of a plasma fractal, with the contrast lowered so that the brightest point stays."""
    strength, decay = constants
    height, width = x.shape[1:3]
    clouds = plasma(1 << (max(height, width) - 1).bit_length(), decay, generators)[:, :height, :width, None]
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + strength * clouds) * brightest / (brightest + strength)


def plasma(size: int, decay: float, generators: Generators) -> np.ndarray:
    """Diamond-square fractals in [0, 1] on a torus, `(n, size, size)`; size is a power of two."""
    height = np.zeros((len(generators), size, size))
    step, wobble = size, 100.0
    while step >= 2:
        half = step // 2
        corners = height[:, ::step, ::step]
        side = corners + np.roll(corners, -1, axis=1)
        height[:, half::step, half::step] = _wobbled(side + np.roll(side, -1, axis=2), wobble, generators)
        middles = height[:, half::step, half::step]
        rows = middles + np.roll(middles, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        height[:, ::step, half::step] = _wobbled(rows, wobble, generators)
        columns = middles + np.roll(middles, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        height[:, half::step, ::step] = _wobbled(columns, wobble, generators)
        step, wobble = half, wobble / decay
    height -= height.min(axis=(1, 2), keepdims=True)
    return height / height.max(axis=(1, 2), keepdims=True)


def _wobbled(four: np.ndarray, wobble: float, generators: Generators) -> np.ndarray:
    return four / 4 + wobble * np.stack([g.uniform(-wobble, wobble, size=four.shape[1:]) for g in generators])


def spatter(x: np.ndarray, constants: tuple[float, ...], generators: Generators) -> np.ndarray:
    """Drops of water (they shine) or mud (it covers)."""
    mean, deviation, sigma, threshold, strength, is_mud = constants
    liquid = np.stack([g.normal(mean, deviation, size=x.shape[1:3]) for g in generators])
    liquid = scipy.ndimage.gaussian_filter(liquid, sigma=(0, sigma, sigma), mode="nearest")
    wet = liquid > threshold
    if is_mud:
        cover = scipy.ndimage.gaussian_filter(
            wet.astype(float), sigma=(0, strength, strength), mode="nearest"
        )
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        return x * (1 - cover) + MUD * cover
    shine = np.zeros_like(liquid)
    relief = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    for layer, drop, amount in zip(shine, wet, liquid, strict=True):
        if drop.any():  # light falls on the drops from one side
            depth = scipy.ndimage.distance_transform_edt(drop)
            lit = np.maximum(scipy.ndimage.correlate(depth / depth.max(), relief, mode="mirror"), 0)
            lit = scipy.ndimage.uniform_filter(lit, 3, mode="mirror") * drop * amount
            layer += lit / max(lit.max(), 1e-12)
    return x + strength * shine[..., None] * WATER
