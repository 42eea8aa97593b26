# SPDX-License-Identifier: Apache-2.0
"""Blur: lenses, frosted glass and movement."""

from collections.abc import Sequence

import numpy as np
import scipy

Generators = Sequence[np.random.Generator]


def gaussian_blur(x: np.ndarray, sigma: float, generators: Generators) -> np.ndarray:
    """A Gaussian over the pixels."""
    return np.asarray(scipy.ndimage.gaussian_filter(x, sigma=(0, sigma, sigma, 0), mode="nearest"))


def defocus_blur(x: np.ndarray, constants: tuple[float, float], generators: Generators) -> np.ndarray:
    """An image out of focus: every point becomes a disk whose edge is softened."""
    radius, softness = constants
    reach = np.arange(-3, 4)
    disk = (reach[:, None] ** 2 + reach[None, :] ** 2 <= radius**2).astype(float)
    edge = np.exp(-(np.arange(-1, 2) ** 2) / (2 * softness**2))
    edge /= edge.sum()
    kernel = scipy.ndimage.correlate(disk / disk.sum(), np.outer(edge, edge), mode="constant")
    return np.asarray(scipy.ndimage.correlate(x, kernel[None, :, :, None], mode="mirror"))


def glass_blur(x: np.ndarray, constants: tuple[float, int, int], generators: Generators) -> np.ndarray:
    """Frosted glass: pixels take the value of a near one above or to the left, between two light blurs."""
    sigma, reach, passes = constants
    n, height, width, _ = x.shape
    x = np.floor(gaussian_blur(x, sigma, generators) * 255) / 255
    rows, columns = np.arange(reach + 1, height), np.arange(reach + 1, width)
    image, row, column = np.ix_(np.arange(n), rows, columns)
    for _ in range(passes):
        steps = np.stack([g.integers(-reach, reach, size=(2, len(rows), len(columns))) for g in generators])
        x[:, reach + 1 :, reach + 1 :] = x[image, row + steps[:, 0], column + steps[:, 1]]
    return gaussian_blur(x, sigma, generators)


def motion_blur(x: np.ndarray, constants: tuple[float, float], generators: Generators) -> np.ndarray:
    """A moving camera: a fading trace in a random direction within 45° of the horizontal."""
    radius, sigma = constants
    angles = [g.uniform(-45, 45) for g in generators]
    return trace(x, radius, sigma, angles)


def trace(x: np.ndarray, radius: float, sigma: float, angles: Sequence[float]) -> np.ndarray:
    """Every pixel becomes a half-Gaussian mean of the pixels in one direction (degrees), edges repeated."""
    steps = np.arange(2 * int(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    reach = len(steps)
    height, width = x.shape[1:3]
    padded = np.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    out = np.zeros_like(x)
    for image, angle, target in zip(padded, np.deg2rad(angles), out, strict=True):
        down = np.ceil(steps * np.sin(angle) - 0.5).astype(int) + reach
        right = np.ceil(steps * np.cos(angle) - 0.5).astype(int) + reach
        for weight, d, r in zip(weights, down, right, strict=True):
            target += weight * image[d : d + height, r : r + width]
    return out


def zoom_blur(x: np.ndarray, largest: float, generators: Generators) -> np.ndarray:
    """A camera that moves towards the object: the mean over magnifications."""
    factors = np.arange(1, largest, 0.01)
    return (x + sum(magnify(x, factor) for factor in factors)) / (len(factors) + 1)


def magnify(x: np.ndarray, factor: float) -> np.ndarray:
    """The middle of the images, enlarged to the whole size by linear interpolation."""
    for axis in (1, 2):
        low, part = _enlarge(x.shape[axis], factor)
        part = part.reshape(-1, *(1,) * (x.ndim - axis - 1))
        x = x.take(low, axis=axis) * (1 - part) + x.take(low + 1, axis=axis) * part
    return x


def _enlarge(size: int, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Where the pixels of an enlarged line come from: index of the lower one, part of the next."""
    kept = int(np.ceil(size / factor))
    large = round(kept * factor)
    trim = (large - size) // 2
    at = (np.arange(trim, trim + size) * (kept - 1) / (large - 1)).clip(0, kept - 1)
    low = np.minimum(at.astype(int), kept - 2)
    return (size - kept) // 2 + low, at - low
