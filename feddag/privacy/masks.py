# SPDX-License-Identifier: Apache-2.0
"""Masks of secure aggregation: keys (X25519), seeds (HKDF), masks (ChaCha20), numbers in a ring.

A client adds one mask that only it knows, and one mask for every peer that both of them know: the one with
the smaller id adds it, the other subtracts it. In the sum of all clients the pair masks cancel.

Numbers are whole: round(x · 2²⁴) modulo 2⁶⁴. So a sum is exact, whatever the order, up to |x| = 2³⁹.
"""

from collections.abc import Mapping

import numpy as np

from feddag.core.errors import InvalidInput, InvalidMessage

FRACTION = 24  # bits behind the point
LARGEST = 2.0**38  # of a sum
KEY_BYTES = 32


def _crypto() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InvalidInput(
            "secure aggregation needs the package cryptography: pip install 'feddag[privacy]'"
        ) from None


def public_key(private: bytes) -> bytes:
    """The key that a client tells everybody."""
    _crypto()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pair_seed(private: bytes, peer: bytes, session: str) -> bytes:
    """The seed that two clients share in one session; it says nothing about the seeds of other sessions."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        key = X25519PublicKey.from_public_bytes(peer)
        secret = X25519PrivateKey.from_private_bytes(private).exchange(key)
    except ValueError:
        raise InvalidMessage("peers", "public keys of 32 bytes", "something else") from None
    return HKDF(SHA256(), KEY_BYTES, None, f"feddag secure sum {session}".encode()).derive(secret)


def mask(seed: bytes, size: int) -> np.ndarray:
    """`size` numbers of the ring that look random to everybody without the seed."""
    _crypto()
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)


def encoded(values: np.ndarray, members: int) -> np.ndarray:
    """Real numbers as numbers of the ring; refused where a sum of `members` such numbers might not fit."""
    most = float(np.abs(values).max(initial=0))
    if not most * members < LARGEST:
        raise InvalidMessage("update", f"numbers up to {LARGEST / members:g} for a secure sum", f"{most:g}")
    return np.rint(values.astype(np.float64) * 2.0**FRACTION).astype(np.int64).view(np.uint64)


def decoded(total: np.ndarray) -> np.ndarray:
    """The real numbers that a sum stands for."""
    return total.view(np.int64).astype(np.float64) / 2.0**FRACTION


def masked(values: np.ndarray, own: str, own_seed: bytes, pair_seeds: Mapping[str, bytes]) -> np.ndarray:
    """Numbers of the ring hidden by the own mask and by one mask per peer."""
    total = values + mask(own_seed, len(values))
    for peer, seed in pair_seeds.items():
        if own < peer:
            total += mask(seed, len(values))
        else:
            total -= mask(seed, len(values))
    return total


def unmasked(
    parts: Mapping[str, np.ndarray],
    own_seeds: Mapping[str, bytes],
    dropped_seeds: Mapping[str, Mapping[str, bytes]],
) -> np.ndarray:
    """The sum of the survivors' numbers: their own masks, and the pair masks with who dropped, removed."""
    total = np.zeros_like(next(iter(parts.values())))
    for client, part in parts.items():
        total += part
        total -= mask(own_seeds[client], len(part))
        for peer, seed in dropped_seeds[client].items():
            if client < peer:
                total -= mask(seed, len(part))
            else:
                total += mask(seed, len(part))
    return total
