from __future__ import annotations

import torch

from seqwise.backbones.states import detach, flatten, join_rows, map_state, structure, unflatten


def example():
    return ((torch.arange(6.0).view(3, 2), None), torch.ones(3, 1))


def test_a_carry_survives_being_saved():
    carry = example()
    back = unflatten(structure(carry), flatten(carry))
    assert back[0][1] is None
    assert torch.equal(back[0][0], carry[0][0])
    assert torch.equal(back[1], carry[1])
    assert sorted(flatten(carry)) == ["carry.0.0", "carry.1"]


def test_rows_that_were_cut_apart_join_again():
    carry = example()
    parts = [map_state(lambda t, i=i: t[i : i + 1], carry) for i in range(3)]
    assert torch.equal(join_rows(parts)[0][0], carry[0][0])


def test_no_carry_stays_no_carry():
    assert flatten(None) == {}
    assert unflatten(structure(None), {}) is None
    assert join_rows([None, None]) is None
    assert detach(None) is None
