# SPDX-License-Identifier: Apache-2.0
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddag.core.seeds import Seed

parts = st.lists(st.text(max_size=5) | st.integers(0, 99), max_size=4)


def path(root, names):
    seed = Seed(root)
    for name in names:
        seed = seed / name
    return seed


@given(st.integers(0, 2**40), parts, parts)
def test_different_paths_give_different_numbers(root, one, other):
    same = [str(p) for p in one] == [str(p) for p in other]
    assert (path(root, one).integer() == path(root, other).integer()) == same


def test_a_seed_is_the_same_number_on_every_machine():
    assert (Seed(7) / "round" / 3 / "client" / "c01").integer() == 1728141739576407549


def test_ambient_seeds_the_global_generator_and_puts_it_back():
    before = torch.random.get_rng_state()
    with (Seed(1) / "a").ambient():
        first = torch.rand(3)
    with (Seed(1) / "a").ambient():
        second = torch.rand(3)
    assert torch.equal(first, second)
    assert torch.equal(before, torch.random.get_rng_state())


def test_generators_of_one_seed_start_alike():
    assert Seed(5).numpy().random() == Seed(5).numpy().random()
    assert torch.equal(torch.rand(2, generator=Seed(5).torch()), torch.rand(2, generator=Seed(5).torch()))
