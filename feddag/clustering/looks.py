# SPDX-License-Identifier: Apache-2.0
"""What a view looks at: samples as rows of numbers, before their classes are described.

`pixels`   the samples as they are; images and windows averaged over blocks, text as frequencies of codes
`shape`    each row of `pixels` minus its mean, with length 1: neither brightness nor contrast counts
`texture`  energies of frequency bands as numbers in [0, 1]: how smooth, noisy or faint the samples are
`tones`    how many pixels are dark, grey or bright: how images are lit, and on what ground they are taken
"""

from math import prod

import numpy as np

from feddag.clustering.arrays import FloatArray, IntArray

BANDS = 12
"""Frequency bands of equal width between 0 and the highest frequency that a row or column can hold."""
LEAST_ENERGY, DECADES = 1e-6, 7.0
"""log10 of an energy from 1e-6 (rounding of pixels to 1/255) to 10 becomes a number from 0 to 1."""
TONES = 12
"""Steps of brightness from black to white."""
CODES = 64
"""Text: frequencies of codes modulo this number, so that every alphabet has the same width."""


def pixels(x: np.ndarray, side: int = 16, text: bool = False) -> FloatArray:
    """Samples as rows: blocks of an image or window are averaged to at most `side` places; 0: as they are.

    `text` says that the samples are sequences of codes.
    """
    if side and text:
        return code_frequencies(x)
    if side and x.ndim > 2:
        for axis in range(2, x.ndim):  # after samples and channels
            x = _averaged(x, axis, side)
    rows_ND = x.reshape(len(x), prod(x.shape[1:]))
    return rows_ND.astype(np.float32) if side else rows_ND


def pixel_width(sample_shape: tuple[int, ...], side: int, text: bool) -> int:
    """The number of values in a row of `pixels`."""
    if side and text:
        return CODES
    if not side:
        return prod(sample_shape)
    return prod(sample_shape[:1]) * prod(-(-n // _block(n, side)) for n in sample_shape[1:])


def reshaped(rows_ND: FloatArray, sample_shape: tuple[int, ...], side: int, text: bool) -> FloatArray:
    """Rows of `pixels` or `shape` as images or windows again."""
    if text or not side:
        return rows_ND if text and side else rows_ND.reshape(len(rows_ND), *sample_shape)
    kept = [-(-n // _block(n, side)) for n in sample_shape[1:]]
    return rows_ND.reshape(len(rows_ND), *sample_shape[:1], *kept)


def shape(x: np.ndarray, side: int = 16, text: bool = False) -> FloatArray:
    """Rows of `pixels` minus their mean, with length 1; a constant sample is a row of zeros."""
    rows_ND = pixels(x, side, text).astype(np.float32)
    # Rounding leaves about 1e-6 of the brightness of a constant sample; that is no shape.
    least_N1 = 1e-4 * np.abs(rows_ND).max(axis=1, initial=0, keepdims=True)
    rows_ND = rows_ND - rows_ND.mean(axis=1, keepdims=True)
    norms_N1 = np.linalg.norm(rows_ND, axis=1, keepdims=True)
    some_N1 = norms_N1 > least_N1
    return np.where(some_N1, rows_ND / np.where(some_N1, norms_N1, 1), 0)


def texture(x: np.ndarray, text: bool = False) -> FloatArray:
    """Rows of numbers in [0, 1]: log energies of bands for images and windows, frequencies of codes for text.

    Vectors without neighbourhood have no texture: rows without numbers.
    """
    if text:
        return code_frequencies(x)
    if x.ndim < 3:
        return np.zeros((len(x), 0), dtype=np.float32)
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    if x.ndim == 3:  # windows of several signals: bands of each signal
        from scipy.fft import rfft

        spectrum = rfft(x.astype(np.float32) / unit, axis=2)
        each = spectrum.reshape(len(x) * x.shape[1], spectrum.shape[2])
        energies = _energies(each, np.fft.rfftfreq(x.shape[2]), x.shape[2])
        energies = energies.reshape(len(x), x.shape[1] * BANDS)
    else:
        grey_NHW = x[:, 0] if x.shape[1] == 1 else x.mean(axis=1, dtype=np.float32)
        grey_NHW = grey_NHW.astype(np.float32) / np.float32(unit)
        rows, columns = grey_NHW.shape[1:]
        radius = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None, :])
        from scipy.fft import rfft2

        spectrum = rfft2(grey_NHW).reshape(len(x), radius.size)
        energies = _energies(spectrum, radius.ravel(), rows * columns)
    logs = np.log10(np.maximum(energies, LEAST_ENERGY) / LEAST_ENERGY) / DECADES
    return np.clip(logs, 0, 1).astype(np.float32)


def texture_width(sample_shape: tuple[int, ...], text: bool) -> int:
    """The number of values in a row of `texture`."""
    if text:
        return CODES
    if len(sample_shape) < 2:
        return 0
    return BANDS * (sample_shape[0] if len(sample_shape) == 2 else 1)


def tones(x: np.ndarray, text: bool = False) -> FloatArray:
    """Images as rows of length 1: roots of the shares of pixels in 12 steps of brightness.

    Roots, because the error of a share grows with the share. What is no image has no tones: rows of nothing.
    """
    if text or x.ndim != 4:
        return np.zeros((len(x), 0), dtype=np.float32)
    whole, size = x.dtype == np.uint8, x.shape[2] * x.shape[3]
    white = x.shape[1] * (255 if whole else 1)
    sums_NP = x[:, 0] if x.shape[1] == 1 else x.sum(axis=1, dtype=np.int32 if whole else np.float32)
    sums_NP = sums_NP.reshape(len(x), size)
    if whole:
        steps_NP = np.minimum(np.arange(white + 1) * TONES // white, TONES - 1)[sums_NP]
    else:
        steps_NP = np.clip(np.floor(sums_NP * (TONES / white)), 0, TONES - 1).astype(np.int64)
    steps_NP += TONES * np.arange(len(x))[:, None]
    counts_NT = np.bincount(steps_NP.ravel(), minlength=TONES * len(x)).reshape(len(x), TONES)
    return np.sqrt(counts_NT / max(size, 1)).astype(np.float32)


def tones_width(sample_shape: tuple[int, ...], text: bool) -> int:
    """The number of values in a row of `tones`."""
    return TONES if len(sample_shape) == 3 and not text else 0


def code_frequencies(x_NT: IntArray) -> FloatArray:
    """How often each code occurs in a sample, as shares that add up to 1."""
    counts_NK = np.zeros((len(x_NT), CODES), dtype=np.float32)
    np.add.at(counts_NK, (np.arange(len(x_NT))[:, None], x_NT.astype(np.int64) % CODES), 1)
    return counts_NK / max(x_NT.shape[1], 1)


def _block(length: int, side: int) -> int:
    """Neighbours that are averaged: the fewest that leave at most `side` places."""
    return -(-length // side)


def _averaged(x: np.ndarray, axis: int, side: int) -> FloatArray:
    """Means of neighbours along an axis; the last block may be smaller."""
    length = x.shape[axis]
    block = _block(length, side)
    if block == 1:
        return x
    ahead = (slice(None),) * axis
    sums = x[(*ahead, slice(0, None, block))].astype(np.float32)
    for k in range(1, block):  # slices are far faster than a sum over a new axis
        part = x[(*ahead, slice(k, None, block))]
        sums[(*ahead, slice(0, part.shape[axis]))] += part
    sizes = np.minimum(block, length - np.arange(0, length, block)).astype(np.float32)
    return sums / sizes.reshape((-1,) + (1,) * (x.ndim - 1 - axis))


def _energies(spectrum_NF: np.ndarray, frequencies_F: FloatArray, size: int) -> FloatArray:
    """Mean energy per coefficient in each band; the mean of the samples (frequency 0) is in no band."""
    band_F = np.minimum(np.floor(frequencies_F / 0.5 * BANDS), BANDS - 1)
    band_F = np.where((frequencies_F == 0) | (frequencies_F > 0.5), -1, band_F)
    inside_FB = (band_F[:, None] == np.arange(BANDS)).astype(np.float32)
    energies_NF = (np.square(spectrum_NF.real) + np.square(spectrum_NF.imag)).astype(np.float32) / size
    return energies_NF @ (inside_FB / np.maximum(inside_FB.sum(axis=0), 1))
