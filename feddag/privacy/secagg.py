# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation as ordinary tasks: what a client does so that the server learns nothing but a sum.

    advertise   a fresh key pair; the public key goes to the server
    masked      answer the question itself, then hide the answer behind masks
    reveal      the own mask's seed, and this session's pair seeds with those who dropped out

A client reveals once per session, and only for a group that is large enough: the server can never remove both
the own mask and the pair masks of one client. Keys live for one question.
"""

import dataclasses
import hashlib
from typing import Any

import numpy as np

from feddag.core import codec
from feddag.core.contract import Known
from feddag.core.errors import InvalidMessage
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.privacy.guard import Guard, Refused
from feddag.privacy.masks import KEY_BYTES, encoded, masked, pair_seed, public_key

MEMORY, TOLD = "secure sum", "secure sum told"  # private key and own seed; whom the client revealed for


@message
class Advertise:
    """Make a key for this session."""

    session: str


@message
class Key:
    """A public key."""

    key: np.ndarray = public(shape=(KEY_BYTES,), dtype="uint8")


@message
class AskMasked:
    """Answer this question for a sum over these peers."""

    session: str
    task: str  # address of the question
    request: np.ndarray = public()  # the question, encoded
    peers: dict[str, np.ndarray] = public()  # client → public key, everybody of the group
    size: int  # how many numbers the answer has
    uniform: bool  # whether all clients count the same


def _size(known: Known) -> int:
    return known.request.size


@message
class Hidden:
    """An answer that nobody can read alone."""

    values: np.ndarray = sensitive("update", shape=(_size,), dtype="uint64", least=0, most=2.0**64)


@message
class AskReveal:
    """These clients answered, those did not: help to remove the masks of the sum."""

    session: str
    survivors: tuple[str, ...]
    dropped: dict[str, np.ndarray] = public()  # client → public key


@message
class Revealed:
    """Seeds of the own mask, and of the pair masks with those who dropped out."""

    own: np.ndarray = public(shape=(KEY_BYTES,), dtype="uint8")
    pairs: dict[str, np.ndarray] = public()


@client_task
def advertise(request: Advertise, client: Client) -> Key:
    """A new key pair and a new own seed, kept until the next session."""
    noise = _guard(client).noise
    private, own = noise.secret(f"key {request.session}"), noise.secret(f"own {request.session}")
    client.memory[MEMORY] = np.frombuffer(private + own, dtype=np.uint8)
    client.memory.pop(TOLD, None)
    return Key(key=np.frombuffer(public_key(private), dtype=np.uint8))


@client_task
def hide(request: AskMasked, client: Client) -> Hidden:
    """Answer, protect the answer as every other, weigh it, and mask it."""
    guard = _guard(client)
    _check_group(guard, len(request.peers))
    private, own_seed = _secrets(client)
    task = guard.place.task(request.task)
    with guard.inside(task):
        reply = task(codec.decode(task.request, request.request.tobytes()), client)
        reply = guard.release(reply, client)
    values = numbers_of(reply, request.uniform)
    if len(values) != request.size:
        raise InvalidMessage("values", f"{request.size} numbers", str(len(values)))
    seeds = {
        peer: pair_seed(private, key.tobytes(), request.session)
        for peer, key in request.peers.items()
        if peer != client.id
    }
    hidden = masked(encoded(values, len(request.peers)), client.id, own_seed, seeds)
    guard.note_masked()
    return Hidden(values=guard.released(hidden))


@client_task
def reveal(request: AskReveal, client: Client) -> Revealed:
    """The seeds that the server needs for the sum, and no others; the same answer if it asks again."""
    guard = _guard(client)
    _check_group(guard, len(request.survivors))
    if client.id not in request.survivors or set(request.survivors) & set(request.dropped):
        raise Refused("a client reveals its seeds only as a survivor, and nobody both survives and drops out")
    told = np.frombuffer(
        hashlib.sha256("\n".join([*request.survivors, "", *request.dropped]).encode()).digest(), np.uint8
    )
    before = client.memory.get(TOLD)
    if isinstance(before, np.ndarray) and not np.array_equal(before, told):
        raise Refused("the server asked for seeds of two different sums of one session")
    client.memory[TOLD] = told
    private, own = _secrets(client)
    pairs = {
        peer: np.frombuffer(pair_seed(private, key.tobytes(), request.session), dtype=np.uint8)
        for peer, key in request.dropped.items()
    }
    return Revealed(own=np.frombuffer(own, dtype=np.uint8), pairs=pairs)


def numbers_of(reply: Any, uniform: bool) -> np.ndarray:
    """A reply as it is summed: all parameters times the client's weight, the weight, the examples."""
    weight = 1.0 if uniform else float(reply.examples)
    parts = [getattr(reply, f.name) for f in dataclasses.fields(reply) if f.name != "examples"]
    vectors = [part.vector.numpy().astype(np.float64) * weight for part in parts if isinstance(part, Params)]
    return np.concatenate([*vectors, [weight, float(reply.examples)]])


def _guard(client: Client) -> Guard:
    if not isinstance(client.privacy, Guard):
        raise Refused("this client was not told to protect anything, so it takes no part in secure sums")
    return client.privacy


def _check_group(guard: Guard, size: int) -> None:
    least = guard.options.update.min_group
    if size < least:
        raise Refused(f"a sum over {size} clients would show too much: at least {least} must take part")


def _secrets(client: Client) -> tuple[bytes, bytes]:
    kept = client.memory.get(MEMORY)
    if not isinstance(kept, np.ndarray) or kept.nbytes != 2 * KEY_BYTES:
        raise Refused("this client has no key for the session")
    return kept.tobytes()[:KEY_BYTES], kept.tobytes()[KEY_BYTES:]
