# SPDX-License-Identifier: Apache-2.0
"""Masked sums: equal to the plain sum of whole numbers, for every pattern of clients that drop out."""

import numpy as np
import pytest

from feddag.core.errors import InvalidMessage
from feddag.core.seeds import Seed
from feddag.privacy.masks import LARGEST, decoded, encoded, mask, masked, pair_seed, public_key, unmasked
from feddag.privacy.noise import Noise


def masked_group(values: dict[str, np.ndarray], session: str) -> tuple[dict, dict, dict]:
    """Masked numbers, own seeds and all pair seeds of a group."""
    noise = Noise(Seed(1) / session)
    private = {c: noise.secret(f"key {c}") for c in values}
    own = {c: noise.secret(f"own {c}") for c in values}
    pairs = {
        c: {p: pair_seed(private[c], public_key(private[p]), session) for p in values if p != c}
        for c in values
    }
    return {c: masked(values[c], c, own[c], pairs[c]) for c in values}, own, pairs


def test_masked_sums_are_plain_sums_for_a_thousand_patterns_of_drop_outs() -> None:
    generator = Seed(2).numpy()
    patterns = 0
    for group in range(20):
        clients = [f"c{i}" for i in range(int(generator.integers(3, 8)))]
        values = {
            c: encoded(generator.normal(size=5) * 10.0 ** generator.integers(-3, 4), 8) for c in clients
        }
        hidden, own, pairs = masked_group(values, f"session {group}")
        for _ in range(50):
            alive = [c for c in clients if generator.random() < 0.7] or clients[:1]
            gone = [c for c in clients if c not in alive]
            total = unmasked(
                {c: hidden[c] for c in alive},
                {c: own[c] for c in alive},
                {c: {p: pairs[c][p] for p in gone} for c in alive},
            )
            wanted = sum((values[c] for c in alive), np.zeros(5, dtype=np.uint64))
            assert np.array_equal(total, wanted)
            patterns += 1
    assert patterns == 1000


def test_both_sides_of_a_pair_find_the_same_seed_and_another_one_in_every_session() -> None:
    a, b = Noise(Seed(1)).secret("a"), Noise(Seed(1)).secret("b")
    assert pair_seed(a, public_key(b), "one") == pair_seed(b, public_key(a), "one")
    assert pair_seed(a, public_key(b), "one") != pair_seed(a, public_key(b), "two")


def test_a_masked_answer_looks_random() -> None:
    values = {c: encoded(np.zeros(4096), 3) for c in ("a", "b", "c")}
    hidden, _, _ = masked_group(values, "look")
    bits = np.unpackbits(hidden["a"].view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.005
    assert not np.array_equal(hidden["a"], hidden["b"])
    assert len(np.unique(mask(bytes(32), 1000))) == 1000


def test_numbers_come_back_to_the_last_bit_behind_the_point() -> None:
    values = np.array([0.0, 1.5, -2.25, 1e-7, 123456.789])
    assert np.allclose(decoded(encoded(values, 10)), values, atol=2.0**-25, rtol=0)


@pytest.mark.parametrize("bad", [LARGEST, float("inf"), float("nan")])
def test_numbers_that_do_not_fit_are_refused(bad: float) -> None:
    with pytest.raises(InvalidMessage, match="secure sum"):
        encoded(np.array([bad]), 3)


def test_a_key_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="32 bytes"):
        pair_seed(bytes(range(32)), b"short", "s")
