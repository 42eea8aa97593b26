# SPDX-License-Identifier: Apache-2.0
"""Settings under attack: any file and any --set gives an experiment or one clear sentence."""

import datetime
import json
import re

import numpy as np
import pytest

from feddag.core.errors import FederationError, InvalidInput
from feddag.experiment.overrides import override, read_settings
from feddag.experiment.recipes import RECIPES, resolve
from feddag.experiment.settings import DEFAULTS, Experiment

DATE = datetime.date(1979, 5, 27)
MANY_DIGITS = "9" * 5_000

WRONG_SETTINGS = [
    ({"num_rounds": DATE}, 'num_rounds = "1979-05-27": expected a whole number'),
    ({"training": {"lr": DATE}}, 'training.lr = "1979-05-27": expected a number'),
    ({"num_rounds": 0}, "num_rounds = 0: expected greater than or equal to 1"),
    ({"num_rounds": 10**7}, "num_rounds = 10000000: expected less than or equal to 1,000,000"),
    ({"num_clients": 10**8}, "num_clients = 100000000: expected less than or equal to 1,000,000"),
    ({"num_clients": 10**30}, "num_clients = an integer of about 31 digits: expected an integer from -2^63"),
    ({"num_clients": [3]}, "num_clients = [3]: expected a whole number"),
    ({"num_rounds": True}, "num_rounds = true: expected a number"),
    ({"engine": {"workers": 10**6}}, "engine.workers = 1000000: expected less than or equal to 1,024"),
    ({"engine": {"deadline": 1e300}}, "engine.deadline = 1e+300: expected less than or equal to 10,000,000"),
    ({"algorithm": 3}, "algorithm = 3: expected a table of settings"),
    ({"algorithm": {"name": "ifca", "num_clusters": 10**9}}, "num_clusters = 1000000000: expected at most"),
    ({"algorithm": {"name": "cfl_gp", "num_clusters": "x"}}, "expected a whole number or 'auto'"),
    ({"algorithm": {"name": "fedprox", "x" * 999: 1}}, "xxx…' is unknown: 'fedprox' has mu"),
    ({"data": []}, "data = []: expected a table of settings"),
    ({"data": {"folder": ""}}, 'data.folder = "": expected text that is not empty'),
    ({"data": {"path": "a\0b"}}, 'data.path = "a\\u0000b": expected Unicode text without NUL characters'),
    ({"data": {"path": "~nobody-of-this-name/x"}}, "expected a path that this system allows"),
    ({"data": {"folder": "x" * 300}}, "expected a path that this system allows"),
    ({"data": {"synthetic": {"train": 10**12}}}, "expected at most 1,000,000,000"),
    ({"data": {"synthetic": {"dimensions": 10**9}}}, "expected at most 1,000,000,000"),
    ({"training": {"lr": float("nan")}}, "training.lr = NaN: expected a finite number"),
    ({"fraction_train": float("inf")}, "fraction_train = Infinity: expected a finite number"),
    ({"model": ""}, 'model = "": expected text that is not empty'),
    ({"model": "\ud800"}, 'model = "\\ud800": expected Unicode text'),
    ({"name": "x" * 5_000}, "expected at most 4,096 characters"),
    ({"name": "a\nb"}, 'name = "a\\nb": expected at most 64 letters'),
    ({"a\x1b[31m": 1}, "a\\x1b[31m: unknown key; allowed here: algorithm"),
    ({3: 4}, "3: expected a key that is text"),
    ({"partition": {"concept": {"maps": []}}}, "partition.concept.maps = []: expected a list of 1 or more"),
    ({"evaluation": {"every": "often"}}, 'evaluation.every = "often": expected a whole number'),
    ({"data": {"download": "perhaps"}}, 'data.download = "perhaps": expected true or false'),
    ([1, 2], "[1, 2]: expected a table of settings"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "sentence"), WRONG_SETTINGS, ids=[sentence[:40] for _, sentence in WRONG_SETTINGS]
)
def test_wrong_settings_get_a_sentence_with_key_value_and_what_is_allowed(settings, sentence):
    with pytest.raises(InvalidInput) as told:
        Experiment.from_settings(settings)
    assert sentence in str(told.value)
    assert_one_line(told.value)


def assert_one_line(error: FederationError) -> None:
    text = str(error)
    assert text.isprintable(), text
    assert len(text) < 3_000
    assert not re.search(r"pydantic|Input should|valid dictionary|\ba (integer|int|array|object)\b", text), (
        text
    )


def test_deep_tables_are_refused_before_anybody_descends():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidInput, match="nested at most 12 deep"):
        Experiment.from_settings(deep)
    with pytest.raises(InvalidInput, match="nested at most 12 deep"):
        override(deep, [])


def test_a_thousand_problems_are_counted_and_not_listed():
    with pytest.raises(InvalidInput, match=r"; and 992 more problems$"):
        Experiment.from_settings({f"key{i}": i for i in range(1_000)})


FILES = {
    "a.toml": (b"num_rounds = " + MANY_DIGITS.encode(), "toml file: an integer has too many digits"),
    "b.json": (b'{"num_rounds": ' + MANY_DIGITS.encode() + b"}", "an integer has too many digits"),
    "c.json": (b"[" * 10_000 + b"]" * 10_000, "nested too deeply"),
    "d.json": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested too deeply"),
    "e.toml": (".".join(["a"] * 1_000).encode() + b" = 1", "nested at most 12 deep"),
    "f.toml": (b"a = " + b"[" * 10_000 + b"]" * 10_000, "nested too deeply"),
    "g.toml": (b"name = '\xff\xfe'", "byte 9 is no UTF-8 text"),
    "h.toml": (b"seed = 1\nseed = 2\n", "not a valid toml file"),
    "i.json": (b'{"seed": 1, "seed": 2}', 'the key "seed" appears twice'),
    "j.json": (b"[1, 2]", "expected a table of settings"),
    "k.json": (b"NaN", "expected a table of settings"),
    "l.json": (b'{"training": {"lr": NaN}}', "training.lr = NaN: expected a finite number"),
    "m.toml": (b"training.lr = inf", "training.lr = Infinity: expected a finite number"),
    "n.toml": (b"num_rounds = 07:32:00", 'num_rounds = "07:32:00": expected a whole number'),
    "o.toml": (b"#" * 1_000_001, "at most 1,000,000 bytes"),
    "p.json": (b"", "not a valid json file"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_gets_a_sentence_with_its_name(name, tmp_path):
    content, sentence = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput) as told:
        resolve(str(tmp_path / name))
    assert sentence in str(told.value)
    assert_one_line(told.value)


def test_a_folder_given_as_a_settings_file_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="is a folder; expected a TOML or JSON file"):
        read_settings(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path):
    (tmp_path / "e.toml").write_bytes(b"\xef\xbb\xbfnum_rounds = 7")
    assert resolve(str(tmp_path / "e.toml")).num_rounds == 7


OVERRIDES = {
    f"num_rounds={MANY_DIGITS}": 'num_rounds = "999',
    "num_rounds=1979-05-27": 'num_rounds = "1979-05-27": expected a whole number',
    "num_rounds=3\nseed=4": 'num_rounds = "3\\nseed=4": expected a whole number',
    "num_rounds=" + "[" * 10_000: 'num_rounds = "[[[',
    "num_rounds=nan": "num_rounds = NaN: expected",
    "num_rounds=": 'num_rounds = "": expected text that is not empty',
    ".".join("a" * 1_000) + "=1": "tables may be nested at most 12 deep",
    "a..b=1": "expected key=value",
    ".=1": "expected key=value",
    "=1": "expected key=value",
    "": "expected key=value",
    "num_rounds.x=1": "'num_rounds' is a value, not a table",
    "training=[]": "training = []: expected a table of settings",
    "algorithm=[1]": "algorithm.name = [1]: expected text",
    "partition=3": "partition.kind = 3: expected 'auto', 'iid'",
    "\x07=1": "\\x07: unknown key",
}


@pytest.mark.parametrize("assignment", OVERRIDES, ids=[repr(a)[:30] for a in OVERRIDES])
def test_a_hostile_override_gets_a_sentence(assignment):
    with pytest.raises(InvalidInput) as told:
        resolve("digits", [assignment])
    assert OVERRIDES[assignment] in str(told.value)
    assert_one_line(told.value)


# -- mutations ------------------------------------------------------------------------------------------

VALUES = (
    None, True, False, 0, -1, 1, 3, 10**9, 10**30, -(2**63), 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", " ", "x", "3", "auto", "feddag", "x" * 9_999, "\0", "\ud800", "../..", "~nobody", "ümläut", "\x1b[2J",
    [], [1], {}, [[[[]]]], ["identity"], {"name": "fedavg"}, {"name": 3}, {"": ""}, {"a": {"b": {"c": 1}}},
    DATE, datetime.datetime(2020, 1, 1), datetime.time(1, 2), b"bytes",
)  # fmt: skip
KEYS = (
    "",
    "x",
    "name",
    "kind",
    "num_rounds",
    "local",
    "lr",
    "preset",
    "\n",
    "ö",
    "__class__",
    "a.b",
    "x" * 500,
)


def mutated(rng: np.random.Generator) -> dict:
    """Valid settings of a random method with up to three random changes at random places."""
    from feddag.algorithms import ALGORITHMS
    from feddag.experiment.listing import hyper_parameters

    settings = json.loads(json.dumps(DEFAULTS))
    method = str(rng.choice([*ALGORITHMS]))
    settings["algorithm"] = {"name": method}
    some = [row[0] for row in hyper_parameters(method) if rng.random() < 0.02]
    settings = override(settings, [f"algorithm.{name}=1" for name in some])
    for _ in range(rng.integers(0, 4)):
        table = settings
        while rng.random() < 0.6:
            tables = [value for value in table.values() if isinstance(value, dict)]
            if not tables:
                break
            table = tables[rng.integers(len(tables))]
        known = [*table, *KEYS] if rng.random() < 0.3 else [*table] or [*KEYS]
        key = known[rng.integers(len(known))]
        if rng.random() < 0.1:
            table.pop(key, None)
        else:
            table[key] = VALUES[rng.integers(len(VALUES))]
    return settings


def attack(cases: int, seed: int) -> tuple[int, int]:
    """Check mutated settings as a whole and behind --set; how many were accepted and refused."""
    rng, accepted, refused = np.random.default_rng(seed), 0, 0
    for _ in range(cases):
        settings = mutated(rng)
        assignments = [f"{key}={value}" for key, value in settings.items() if value != DEFAULTS.get(key)]
        attempts = (
            lambda s=settings: Experiment.from_settings(s),
            lambda s=settings: Experiment.from_settings(override(s, ["training.lr=0.1"])),
            lambda a=assignments: RECIPES["digits"]().with_overrides(a),
        )
        for attempt in attempts:
            try:
                experiment = attempt()
            except FederationError as error:
                assert_one_line(error)
                refused += 1
            else:
                # What is accepted can be written to a file and read back.
                assert Experiment.from_settings(json.loads(json.dumps(experiment.settings()))) == experiment
                experiment.build_algorithm()
                accepted += 1
    return accepted, refused


def test_mutated_settings_give_an_experiment_or_one_sentence():
    accepted, refused = attack(150, seed=1)
    assert min(accepted, refused) > 20


@pytest.mark.hard
def test_many_mutated_settings_give_an_experiment_or_one_sentence(counted):
    accepted, refused = attack(1_500, seed=2)
    assert min(accepted, refused) > 200
    counted("mutated settings", 1_500)
