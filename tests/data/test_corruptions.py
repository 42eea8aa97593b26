# SPDX-License-Identifier: Apache-2.0
import colorsys
import hashlib
import io

import numpy as np
import pytest

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.catalog import load_dataset
from feddag.data.config import DataConfig
from feddag.data.corruptions import CORRUPTIONS, corrupt
from feddag.data.corruptions.blur import magnify, trace
from feddag.data.corruptions.digital import to_hsv, to_rgb
from feddag.data.corruptions.weather import plasma
from tests.data.places import needs

PUBLISHED = {  # MD5 of the files of CIFAR-10-C: five severities one after the other
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
}
FIRST = {  # MD5 of the first 200 images of every severity of those files
    "brightness": "a7c5d731f32bb07e277ea64e0e56b457",
    "contrast": "29d59e152701a99f08bae87d89b49cd7",
    "pixelate": "0e88455198673e12295660c3ac87d71e",
    "saturate": "876c429923208106965628ae6116c0d7",
    "gaussian_blur": "2db67d7d21fc3fd56d40e4bffcae4f20",
}


def pictures(number=6, channels=3, size=32):
    """Smooth random images, so that blur and noise are told apart."""
    rng = Seed(0).numpy()
    coarse = rng.random((number, channels, size // 8, size // 8))
    fine = rng.random((number, channels, size, size))
    return (np.repeat(np.repeat(coarse, 8, axis=2), 8, axis=3) * 200 + 50 * fine).astype(np.uint8)


def in_every_severity(name, number):
    """The first images of CIFAR-10, as the published files hold them: samples, rows, columns, channels."""
    x = load_dataset(DataConfig(name="cifar10")).test.x[:number]
    return [
        corrupt(x, name, severity, range(len(x)), Seed(0)).transpose(0, 2, 3, 1) for severity in range(1, 6)
    ]


def md5(images):
    return hashlib.md5(np.ascontiguousarray(np.concatenate(images)).tobytes()).hexdigest()


@needs("cifar10", "test_0.webp")
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_first_images_of_the_published_files_are_reproduced_bit_by_bit(name):
    assert md5(in_every_severity(name, 200)) == FIRST[name]


@needs("cifar10", "test_0.webp")
@pytest.mark.hard
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_files_are_reproduced_bit_by_bit(name):
    made, file = in_every_severity(name, 10_000), io.BytesIO()
    np.save(file, np.concatenate(made))
    assert hashlib.md5(file.getvalue()).hexdigest() == PUBLISHED[name]
    assert md5([images[:200] for images in made]) == FIRST[name]


def test_there_are_nineteen():
    assert len(CORRUPTIONS) == 19


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 24), (3, 64)])
def test_every_corruption_changes_images_of_any_size_and_keeps_their_shape(name, channels, size):
    x = pictures(channels=channels, size=size)
    out = corrupt(x, name, 3, range(len(x)), Seed(0))
    assert out.shape == x.shape
    assert out.dtype == np.uint8
    if not (channels == 1 and name in ("saturate", "jpeg_compression")):  # grey has no saturation
        assert not np.array_equal(out, x)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_images_corruption_depends_on_its_key_and_not_on_its_neighbours(name):
    x = pictures(4)
    together = corrupt(x, name, 4, range(4), Seed(0))
    alone = np.concatenate([corrupt(x[i : i + 1], name, 4, [i], Seed(0)) for i in range(4)])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise", "fog", "snow", "frost", "glass_blur"])
def test_another_seed_is_another_draw(name):
    x = pictures(2)
    one, other = (corrupt(x, name, 3, range(2), Seed(s)) for s in (0, 1))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise", "impulse_noise", "fog", "contrast"])
def test_a_higher_severity_changes_more(name):
    x = pictures(20)
    changes = [np.abs(corrupt(x, name, s, range(20), Seed(0)).astype(float) - x).mean() for s in (1, 3, 5)]
    assert changes[0] < changes[1] < changes[2]


def test_gaussian_noise_has_the_stated_deviation():
    grey = np.full((50, 3, 32, 32), 128, np.uint8)
    noisy = corrupt(grey, "gaussian_noise", 3, range(50), Seed(0)) / 255
    assert noisy.std() == pytest.approx(0.08, rel=0.02)


def test_impulse_noise_hits_the_stated_share_half_black_half_white():
    grey = np.full((50, 3, 32, 32), 128, np.uint8)
    noisy = corrupt(grey, "impulse_noise", 5, range(50), Seed(0))
    assert (noisy == 0).mean() == pytest.approx(0.035, rel=0.1)
    assert (noisy == 255).mean() == pytest.approx(0.035, rel=0.1)


def test_clean_is_a_copy_and_unknown_names_are_refused():
    x = pictures(2)
    assert np.array_equal(corrupt(x, "clean", 3, range(2), Seed(0)), x)
    with pytest.raises(InvalidInput, match="corruption 'rain' is not one of clean, gaussian_noise"):
        corrupt(x, "rain", 3, range(2), Seed(0))


def test_hue_saturation_value_agree_with_the_standard_library():
    x = Seed(0).numpy().integers(0, 256, size=(200, 1, 1, 3)) / 255
    x[0], x[1] = 0.0, 0.5
    oracle = np.array([colorsys.rgb_to_hsv(*pixel) for pixel in x.reshape(-1, 3)])
    assert np.allclose(to_hsv(x).reshape(-1, 3), oracle)
    assert np.allclose(to_rgb(to_hsv(x)), x)


def test_a_trace_to_the_right_is_a_half_gaussian_of_the_pixels_there():
    x = np.zeros((1, 5, 30, 1))
    x[0, 2, 15, 0] = 1.0
    out = trace(x, 6, 1.0, [0.0])[0, 2, :, 0]
    weights = np.exp(-(np.arange(13) ** 2) / 2)
    assert np.allclose(out[3:16][::-1], weights / weights.sum())


def test_magnifying_by_one_changes_nothing_and_by_two_shows_the_middle():
    x = np.linspace(0, 1, 8)[None, :, None, None] * np.ones((1, 8, 8, 1))
    assert np.allclose(magnify(x, 1.0), x)
    large = magnify(x, 2.0)[0, :, 0, 0]
    assert np.allclose(large, np.linspace(x[0, 2, 0, 0], x[0, 5, 0, 0], 8))


def test_plasma_fills_zero_to_one():
    clouds = plasma(32, 2.0, [Seed(i).numpy() for i in range(3)])
    assert np.allclose(clouds.min(axis=(1, 2)), 0)
    assert np.allclose(clouds.max(axis=(1, 2)), 1)
