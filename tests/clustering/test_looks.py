# SPDX-License-Identifier: Apache-2.0
"""What views look at, against slow literal versions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from feddag.clustering import looks
from feddag.clustering.subspaces import class_means


def literal_pixels(image_CHW: np.ndarray, side: int) -> list[float]:
    channels, height, width = image_CHW.shape
    down, across = -(-height // side), -(-width // side)
    return [
        float(np.mean([[image_CHW[c, i, j] for j in range(b, min(b + across, width))] for i in rows]))
        for c in range(channels)
        for a in range(0, height, down)
        for b in range(0, width, across)
        for rows in [range(a, min(a + down, height))]
    ]


def literal_texture(image_CHW: np.ndarray) -> list[float]:
    grey = image_CHW.astype(float).mean(axis=0) / 255
    height, width = grey.shape
    spectrum = np.fft.fft2(grey)
    sums, counts = np.zeros(looks.BANDS), np.zeros(looks.BANDS)
    for i in range(height):
        for j in range(width // 2 + 1):  # the other half mirrors this one
            radius = np.hypot(min(i, height - i) / height, j / width)
            if 0 < radius <= 0.5:
                band = min(int(radius / 0.5 * looks.BANDS), looks.BANDS - 1)
                sums[band] += abs(spectrum[i, j]) ** 2 / (height * width)
                counts[band] += 1
    energies = sums / np.maximum(counts, 1)
    return [min(max((np.log10(max(e, 1e-6)) + 6) / 7, 0), 1) for e in energies]


@pytest.mark.parametrize("size", [(1, 28, 28), (3, 32, 32), (2, 17, 5), (1, 8, 8)])
def test_pixels_are_means_of_blocks(size):
    x = np.random.default_rng(0).integers(0, 256, size=(3, *size)).astype(np.uint8)
    seen = looks.pixels(x, 16)
    assert seen.shape == (3, looks.pixel_width(size, 16, text=False))
    np.testing.assert_allclose(seen, [literal_pixels(image, 16) for image in x], rtol=1e-5)


def test_samples_stay_as_they_are_where_that_is_asked_for():
    x = np.random.default_rng(0).integers(0, 256, size=(3, 1, 20, 20)).astype(np.uint8)
    np.testing.assert_array_equal(looks.pixels(x, 0), x.reshape(3, -1))
    assert looks.pixels(x, 0).dtype == np.uint8
    assert looks.pixel_width((1, 20, 20), 0, text=False) == 400


def test_windows_are_averaged_over_time_and_vectors_not_at_all():
    windows = np.arange(2 * 9 * 128, dtype=np.float32).reshape(2, 9, 128)
    np.testing.assert_allclose(looks.pixels(windows, 16), windows.reshape(2, 9, 16, 8).mean(3).reshape(2, -1))
    vectors = np.arange(60, dtype=np.float32).reshape(2, 30)
    np.testing.assert_array_equal(looks.pixels(vectors, 16), vectors)
    assert looks.texture(vectors).shape == (2, 0)
    assert looks.texture(windows).shape == (2, looks.texture_width((9, 128), text=False)) == (2, 108)


def test_text_is_seen_as_frequencies_of_codes():
    text = np.array([[1, 1, 2, 65], [3, 3, 3, 3]], dtype=np.uint8)
    seen = looks.pixels(text, 16, text=True)
    assert (seen[0, 1], seen[0, 2], seen[1, 3]) == (0.75, 0.25, 1.0)  # 65 is 1 modulo 64
    np.testing.assert_array_equal(looks.texture(text, text=True), seen)
    assert looks.pixel_width((4,), 16, text=True) == looks.texture_width((4,), text=True) == seen.shape[1]


def test_shape_knows_neither_brightness_nor_contrast():
    x = np.random.default_rng(0).integers(0, 100, size=(4, 1, 8, 8)).astype(np.float32)
    seen = looks.shape(x)
    np.testing.assert_allclose(np.linalg.norm(seen, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(seen.sum(axis=1), 0, atol=1e-4)
    np.testing.assert_allclose(looks.shape(0.3 * x + 40), seen, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 28, 28), (3, 32, 32), (1, 8, 5)])
def test_texture_is_the_log_energy_of_radial_bands(size):
    x = np.random.default_rng(1).integers(0, 256, size=(3, *size)).astype(np.uint8)
    seen = looks.texture(x)
    assert seen.shape == (3, looks.texture_width(size, text=False)) == (3, 12)
    np.testing.assert_allclose(seen, [literal_texture(image) for image in x], atol=1e-5)


def test_texture_tells_noise_blur_and_low_contrast_apart():
    rng = np.random.default_rng(0)
    clean = np.clip(rng.normal(128, 40, size=(50, 1, 32, 32)).cumsum(axis=3) / 8 + 100, 0, 255)
    noisy = clean + rng.normal(0, 30, size=clean.shape)
    blurred = (clean + np.roll(clean, 1, 2) + np.roll(clean, 1, 3)) / 3
    faint = 0.2 * clean + 90
    means = [
        looks.texture(np.clip(x, 0, 255).astype(np.uint8)).mean(axis=0)
        for x in (clean, noisy, blurred, faint)
    ]
    again = looks.texture(np.clip(clean[::-1], 0, 255).astype(np.uint8)[:25]).mean(axis=0)
    for other in means[1:]:
        assert np.abs(other - means[0]).max() > 10 * np.abs(again - means[0]).max()


@pytest.mark.parametrize("channels", [1, 3])
def test_tones_are_roots_of_shares_of_pixels(channels):
    images = np.random.default_rng(3).integers(0, 256, size=(4, channels, 9, 7)).astype(np.uint8)
    shares = np.zeros((4, looks.TONES))
    for n, image in enumerate(images):
        for pixel in image.reshape(channels, -1).T:
            shares[n, min(int(pixel.sum()) * looks.TONES // (255 * channels), looks.TONES - 1)] += 1 / 63
    assert looks.tones(images) == pytest.approx(np.sqrt(shares), abs=1e-6)
    assert np.linalg.norm(looks.tones(images), axis=1) == pytest.approx(1), "so noise can hide a sample"


def test_tones_see_the_ground_and_the_light_but_not_where_things_are():
    black, white = np.zeros((1, 3, 8, 8), np.uint8), np.full((1, 3, 8, 8), 255, np.uint8)
    assert looks.tones(black)[0].tolist() == [1.0] + 11 * [0.0]
    assert looks.tones(white)[0].tolist() == 11 * [0.0] + [1.0]
    mixed = np.random.default_rng(4).integers(0, 256, size=(5, 1, 8, 8)).astype(np.uint8)
    assert np.array_equal(looks.tones(mixed), looks.tones(mixed[..., ::-1]))
    beyond = np.array([-3.0, 0.5, 7.0, 1.0], np.float32).reshape(
        1, 1, 2, 2
    )  # floats from 0 to 1; others count
    assert np.square(looks.tones(beyond))[0, [0, 6, 11]] == pytest.approx([0.25, 0.25, 0.5])


@pytest.mark.parametrize("shape", [(5,), (9, 128)])
def test_only_images_have_tones(shape):
    assert (
        looks.tones(np.ones((3, *shape), np.float32)).shape == (3, looks.tones_width(shape, False)) == (3, 0)
    )
    assert looks.tones(np.ones((3, 5), np.int64), text=True).shape == (3, looks.tones_width((5,), True))
    assert looks.tones_width((3, 32, 32), False) == looks.TONES


def test_constant_images_have_no_shape_and_no_texture():
    x = np.full((2, 3, 12, 12), 77, dtype=np.uint8)
    assert not looks.shape(x).any()
    assert not looks.texture(x).any()


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(
        np.uint8, st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 40), st.integers(1, 40))
    ),
    st.integers(1, 20),
)
def test_any_image_gives_bounded_rows_of_the_stated_width(x, side):
    size = x.shape[1:]
    assert looks.pixels(x, side).shape == (len(x), looks.pixel_width(size, side, text=False))
    seen = looks.shape(x, side)
    assert np.isfinite(seen).all()
    assert (np.linalg.norm(seen, axis=1) <= 1.001).all()
    texture = looks.texture(x)
    assert texture.shape == (len(x), 12)
    assert ((texture >= 0) & (texture <= 1)).all()


def test_means_of_classes_leave_out_small_and_absent_ones():
    features = np.array([[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    told = class_means(features, np.array([2, 2, 0]), 4, min_samples=2)
    assert told.classes_P.tolist() == [2]
    np.testing.assert_allclose(told.vectors_PD, [[0.5, 1.0]])
    assert told.withheld.tolist() == [0]
    assert class_means(np.zeros((3, 0)), np.array([2, 2, 0]), 4).classes_P.tolist() == []
