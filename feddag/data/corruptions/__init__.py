# SPDX-License-Identifier: Apache-2.0
"""The 19 corruptions of CIFAR-10-C in five severities, on batches of images.

The constants are those of CIFAR-10-C (Hendrycks and Dietterich, 2019): ImageNet-C's are far too strong for
small images. Contrast, pixelate, brightness, saturate and Gaussian blur reproduce the published files bit by
bit; the others draw random numbers or depend on a library's version, so they follow the description and are
called "generated" wherever they are used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.corruptions import blur, digital, noise, weather

# Images (n, height, width, 3) in [0, 1], constants of the severity, one generator per image → same shape.
Corrupt = Callable[[np.ndarray, Any, Sequence[np.random.Generator]], np.ndarray]
BATCH = 64


@dataclass(frozen=True)
class Corruption:
    """What is done to an image, and the constants of severity 1 to 5."""

    apply: Corrupt
    constants: tuple[Any, Any, Any, Any, Any]


CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": Corruption(noise.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": Corruption(noise.shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": Corruption(noise.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": Corruption(blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": Corruption(
        blur.glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
    ),
    "motion_blur": Corruption(blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": Corruption(blur.zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),
    "snow": Corruption(
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": Corruption(weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": Corruption(weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": Corruption(digital.brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": Corruption(digital.contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": Corruption(
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": Corruption(digital.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": Corruption(digital.jpeg_compression, (80, 65, 58, 50, 40)),
    "speckle_noise": Corruption(noise.speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
    "gaussian_blur": Corruption(blur.gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1)),
    "spatter": Corruption(
        weather.spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
    ),
    "saturate": Corruption(digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
}


def corrupt(x_NCHW: np.ndarray, name: str, severity: int, keys: Sequence[int], seed: Seed) -> np.ndarray:
    """Corrupted copies of uint8 images; an image's noise depends on its key, not on its neighbours."""
    if name == "clean":
        return np.array(x_NCHW)
    if name not in CORRUPTIONS:
        raise InvalidInput(f"corruption '{name}' is not one of clean, {', '.join(CORRUPTIONS)}")
    out = np.empty_like(x_NCHW)
    for start in range(0, len(x_NCHW), BATCH):
        batch = slice(start, start + BATCH)
        generators = _Generators(seed / name / severity, keys[batch])
        out[batch] = _corrupt_batch(x_NCHW[batch], CORRUPTIONS[name], severity, generators)
    return out


class _Generators(Sequence[np.random.Generator]):
    """One generator per key, made when it is needed, because half of the corruptions draw no numbers."""

    def __init__(self, seed: Seed, keys: Sequence[int]) -> None:
        self._seed, self._keys = seed, keys
        self._made: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, i: Any) -> Any:
        if i not in self._made:
            self._made[i] = (self._seed / int(self._keys[i])).numpy()
        return self._made[i]


def _corrupt_batch(
    x_NCHW: np.ndarray, corruption: Corruption, severity: int, generators: Sequence[np.random.Generator]
) -> np.ndarray:
    channels = x_NCHW.shape[1]
    x = np.ascontiguousarray(np.moveaxis(x_NCHW, 1, -1)) / 255.0
    if channels == 1:  # grey images are corrupted as colour images whose channels agree
        x = np.repeat(x, 3, axis=-1)
    x = corruption.apply(x, corruption.constants[severity - 1], generators)
    x = (np.clip(x, 0, 1) * 255).astype(np.uint8)
    if channels == 1:
        x = x.mean(axis=-1, keepdims=True).round().astype(np.uint8)
    return np.moveaxis(x, -1, 1)
