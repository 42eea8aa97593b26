# SPDX-License-Identifier: Apache-2.0
"""Feature skew: new pools, in which each row has the corruption of the client that holds it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from feddag.core.seeds import Seed
from feddag.data.corruptions import corrupt
from feddag.data.dealing.skews import Styles
from feddag.data.federation import Pool, Share
from feddag.data.files.cache import cached, write_npy
from feddag.data.files.hashing import sha256_of_arrays, sha256_of_text
from feddag.data.files.progress import watched

IN_MEMORY = 64_000_000  # bytes; larger pools are written to the cache and mapped
CHUNK = 1000


def corrupt_shares(
    train: Pool,
    test: Pool,
    shares: list[Share],
    styles: Styles,
    severity: int,
    seed: Seed,
    origin: str,
    cache: Path,
) -> tuple[Pool, Pool, list[Share]]:
    """New pools with corrupted samples, and the shares that point into them.

    Training rows are held by one client, so each is stored once; test images are stored once per corruption.
    """
    members = [np.flatnonzero(styles.of_client == s) for s in range(len(styles.names))]
    own = [np.concatenate([share.train, share.validation]) for share in shares]
    train_blocks = [_joined([own[i] for i in block]) for block in members]
    test_blocks = [np.unique(_joined([shares[i].test for i in block])) for block in members]
    new_train = _corrupted(train, train_blocks, styles, severity, seed / "train", origin, cache)
    new_test = _corrupted(test, test_blocks, styles, severity, seed / "test", origin, cache)
    new_shares = list(shares)
    train_at = test_at = 0
    for block, test_rows in zip(members, test_blocks, strict=True):
        for i in block:
            kept, held = len(shares[i].train), len(shares[i].validation)
            rows = np.arange(train_at, train_at + kept + held)
            train_at += kept + held
            position = test_at + np.searchsorted(test_rows, shares[i].test)
            new_shares[i] = Share(rows[:kept], rows[kept:], position, shares[i].relabel)
        test_at += len(test_rows)
    return new_train, new_test, new_shares


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _corrupted(
    pool: Pool, blocks: list[np.ndarray], styles: Styles, severity: int, seed: Seed, origin: str, cache: Path
) -> Pool:
    """The rows of each block, corrupted as the block's style says, one block after the other."""
    rows = _joined(blocks)
    y = np.asarray(pool.y)[rows]
    shape = (len(rows), *pool.x.shape[1:])

    def chunks() -> Iterator[np.ndarray]:
        for name, block in zip(styles.names, blocks, strict=True):
            for start in range(0, len(block), CHUNK):
                part = block[start : start + CHUNK]
                yield corrupt(np.asarray(pool.x[part]), name, severity, part.tolist(), seed)

    if int(np.prod(shape)) <= IN_MEMORY:
        return Pool(np.concatenate([np.empty((0, *shape[1:]), np.uint8), *chunks()]), y)
    sizes = [len(block) for block in blocks]
    key = sha256_of_text(f"{origin} {sha256_of_arrays(rows)} {sizes} {styles.names} {severity} {seed}")

    def make(folder: Path) -> dict[str, str]:
        write_npy(folder / "x.npy", watched(chunks(), len(rows), "corrupting images"), shape, np.uint8)
        return {}

    return Pool(cached(cache, "corrupted", key, make).arrays["x"], y)
