# SPDX-License-Identifier: Apache-2.0
"""Everything that is wrong or remarkable about what was read, said at once."""

import unicodedata
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from feddag.core.text import listed, plural
from feddag.data.names import allowed_names, is_allowed
from feddag.data.own.clients import ClientArrays, Missing, Reading, one_line, plain_labels
from feddag.data.own.missing import handle_missing, no_label

LARGEST_LABEL = 2**53  # larger whole numbers are not exact in a table
LAST_CHARACTER, SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)  # of Unicode
LARGEST_FLOAT = float(np.finfo(np.float32).max)


def checked(reading: Reading, missing: Missing) -> Reading:
    """Settle names and missing values; add a sentence for everything that is wrong, then for what is odd."""
    reading = _with_safe_names(reading)
    well_formed: list[ClientArrays] = []
    malformed: list[ClientArrays] = []
    problems = list(reading.problems)
    for c in reading.clients:
        wrong = _misshapen(c)
        problems += wrong
        (malformed if wrong else well_formed).append(c)
    place = {c.name: i for i, c in enumerate(reading.clients)}
    reading = handle_missing(replace(reading, clients=well_formed, problems=problems), missing)
    problems = list(reading.problems)
    usable = []
    for c in reading.clients:
        wrong = _wrong_values(c)
        problems += wrong
        if not wrong:
            usable.append(c)
    problems += _differences(usable)
    if usable and not problems and len(_classes(usable)) < 2:
        problems.append("all clients together have one class; at least two are needed")
    warnings = list(reading.warnings) + ([] if problems else _warnings(usable))
    everyone = sorted([*reading.clients, *malformed], key=lambda c: place[c.name])
    return replace(reading, clients=everyone, problems=problems, warnings=warnings)


def _with_safe_names(reading: Reading) -> Reading:
    """Client ids are also file names, so other characters are replaced; names that are allowed stay."""
    given = [c.name for c in reading.clients]
    taken = {name for name in given if is_allowed(name)}
    safe, used = [], set()
    for name in given:
        plain = name
        if not is_allowed(name):
            (plain,) = allowed_names([unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()])
        unique, number = plain, 2
        while unique in used or (unique != name and unique in taken):
            unique, number = f"{plain}-{number}", number + 1
        used.add(unique)
        safe.append(unique)
    renamed = [f"'{a}' is '{b}'" for a, b in zip(given, safe, strict=True) if a != b]
    warnings = list(reading.warnings)
    if renamed:
        warnings.append(f"client names are changed so that they can be file names: {listed(renamed)}")
    clients = [replace(c, name=safe[i]) for i, c in enumerate(reading.clients)]
    return replace(reading, clients=clients, warnings=warnings)


# -- what is wrong with one client ---------------------------------------------------------------------


def _misshapen(c: ClientArrays) -> list[str]:
    """Wrong types and shapes; only where there are none, values can be looked at."""
    problems = []
    if (c.test_x is None) != (c.test_y is None):
        problems.append(f"{c.name}: x_test and y_test belong together, but one is missing")
    for x_name, x, y_name, y in c.parts():
        if x.dtype.kind not in "fiub":
            problems.append(f"{c.name}: {x_name} holds {x.dtype}; expected numbers")
        if x.ndim < 2:
            problems.append(f"{c.name}: {x_name} has shape {x.shape}; expected samples × features")
        elif y.ndim != 1 or len(x) != len(y):
            problems.append(
                f"{c.name}: {x_name} has {plural(len(x), 'sample')} but {y_name} has shape {y.shape}"
            )
        elif x.size == 0:
            nothing = "features" if len(x) else "samples"
            problems.append(f"{c.name}: {x_name} has no {nothing}")
        if y.dtype.kind not in "fiubUS":
            problems.append(f"{c.name}: {y_name} holds {y.dtype}; expected class numbers or names")
    if c.test_x is not None and (c.test_x.dtype == np.uint8) != (c.x.dtype == np.uint8):
        problems.append(f"{c.name}: x holds {c.x.dtype} but x_test {c.test_x.dtype}; only uint8 are pixels")
    if c.test_x is not None and c.test_x.shape[1:] != c.x.shape[1:]:
        problems.append(
            f"{c.name}: samples of x_test have shape {c.test_x.shape[1:]}, those of x {c.x.shape[1:]}"
        )
    return problems


def _wrong_values(c: ClientArrays) -> list[str]:
    problems = []
    for x_name, x, y_name, y in c.parts():
        if x.dtype.kind == "f":
            if infinite := int(np.isinf(x).sum()):
                problems.append(f"{c.name}: {plural(infinite, 'infinite value')} in {x_name}")
            elif x.dtype.itemsize > 4 and (too_large := int((np.abs(x) > LARGEST_FLOAT).sum())):
                problems.append(
                    f"{c.name}: {plural(too_large, 'value')} in {x_name} too large for 32-bit numbers"
                )
        elif x.dtype.kind == "u" and x.dtype.itemsize == 8 and x.size and x.max() >= 2**63:
            problems.append(
                f"{c.name}: {x_name} holds whole numbers that are too large for 64 bits with sign"
            )
        problems += _wrong_labels(c.name, y_name, y[~no_label(y)])
    return problems


def _wrong_labels(name: str, y_name: str, y: np.ndarray) -> list[str]:
    if y.dtype.kind in "US":
        return [] if _is_valid_text(y) else [f"{name}: {y_name} holds labels that are not valid text"]
    if len(y) and not -LARGEST_LABEL <= y.min().item() <= y.max().item() <= LARGEST_LABEL:
        return [f"{name}: {y_name} holds labels that are too large, such as {max(y, key=abs):g}"]
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        return [f"{name}: {y_name} holds fractions such as {y[y != np.floor(y)][0]:g}; expected classes"]
    return []


def _is_valid_text(y: np.ndarray) -> bool:
    """Whether all texts can be written; an array from a file may hold numbers that are no characters."""
    try:
        codes = np.ascontiguousarray(y.astype(str)).view(np.uint32)
    except ValueError:
        return False
    return not ((codes > LAST_CHARACTER) | ((codes >= SURROGATES[0]) & (codes <= SURROGATES[1]))).any()


# -- what is wrong, or odd, about all clients together -------------------------------------------------


def _differences(clients: list[ClientArrays]) -> list[str]:
    """Clients whose samples or labels are of another form than those of most clients."""
    forms: dict[tuple[Any, ...], list[str]] = {}
    for c in clients:
        kinds = {"text" if y.dtype.kind in "US" else "numbers" for _, _, _, y in c.parts()}
        pixels = "uint8 (pixels)" if c.x.dtype == np.uint8 else "numbers that are not pixels"
        forms.setdefault((c.x.shape[1:], " and ".join(sorted(kinds)), pixels), []).append(c.name)
    if not forms:
        return []
    usual = max(forms, key=lambda form: len(forms[form]))
    problems = []
    for form, names in forms.items():
        if form[0] != usual[0]:
            problems += [f"{name}: samples of shape {form[0]}, others have {usual[0]}" for name in names]
        elif form[1] != usual[1]:
            problems += [f"{name}: labels are {form[1]}, others have {usual[1]}" for name in names]
        elif form[2] != usual[2]:
            problems += [f"{name}: x holds {form[2]}, others have {usual[2]}" for name in names]
        elif "and" in form[1]:
            problems += [f"{name}: labels of y and y_test are {form[1]}" for name in names]
    return problems


def _classes(clients: list[ClientArrays]) -> np.ndarray:
    return np.unique(np.concatenate([plain_labels(y) for c in clients for _, _, _, y in c.parts()]))


def _warnings(clients: list[ClientArrays]) -> list[str]:
    warnings = []
    single = [c.name for c in clients if len(c.x) == 1]
    if single:
        noun = "client has" if len(single) == 1 else "clients have"
        warnings.append(f"{len(single):,} {noun} only one sample, to train on: {listed(single)}")
    holders: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for c in clients:
        for value, number in zip(*np.unique(plain_labels(c.y), return_counts=True), strict=True):
            holders.setdefault(str(value), []).append(c.name)
            counts[str(value)] += int(number)
    lonely = [f"'{value}' ({names[0]})" for value, names in holders.items() if len(names) == 1]
    if lonely and len(clients) > 1:
        noun = "class occurs" if len(lonely) == 1 else "classes occur"
        warnings.append(f"{len(lonely):,} {noun} at one client only: {listed(lonely)}")
    once = [f"'{value}'" for value, number in counts.items() if number == 1]
    if once:
        noun = "class has" if len(once) == 1 else "classes have"
        warnings.append(f"{len(once):,} {noun} only one sample: {listed(once)}")
    spellings: dict[str, list[str]] = {}
    for value in holders:
        spellings.setdefault(value.casefold(), []).append(f"'{value}'")
    for words in spellings.values():
        if len(words) > 1:
            warnings.append(f"classes {' and '.join(words)} differ in capital letters only")
    shape = clients[0].x.shape[1:]
    if len(shape) == 3 and shape[-1] in (1, 3, 4) and shape[0] == shape[1] > 4:
        warnings.append(
            f"samples of shape {shape} look like images whose channels come last; "
            f"expected channels × height × width"
        )
    return warnings


def client_facts(reading: Reading) -> list[tuple[str, ...]]:
    """What was found per client, as texts: name, samples, test, shape, type, classes, missing values."""
    facts: list[tuple[str, ...]] = []
    for c in reading.clients:
        classes = np.array([])
        if c.y.dtype.kind in "USfiub" and not _wrong_labels(c.name, "y", c.y[~no_label(c.y)]):
            classes = np.unique(plain_labels(c.y[~no_label(c.y)]))
        names = ", ".join(str(value) for value in classes[:8]) + (", …" if len(classes) > 8 else "")
        tests = "" if c.test_y is None else str(c.test_y.shape[0] if c.test_y.ndim else 0)
        shape = "×".join(str(size) for size in c.x.shape[1:])
        samples = str(c.x.shape[0] if c.x.ndim else 0)
        words = f"{len(classes)}: {names}" if len(classes) else "0"
        facts.append((c.name, samples, tests, shape, str(c.x.dtype), one_line(words), str(c.missing)))
    return facts
