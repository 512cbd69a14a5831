"""States of models: nested tuples of tensors, flattened for checkpoints."""

from __future__ import annotations

import torch

from seqwise.backbones.states import concat_states, detach, flatten, get_structure, map_state, unflatten


def create_state():
    return ((torch.arange(6.0).view(3, 2), None), torch.ones(3, 1))


def test_a_flattened_state_is_restored():
    state = create_state()
    restored = unflatten(get_structure(state), flatten(state))
    assert restored[0][1] is None
    assert torch.equal(restored[0][0], state[0][0])
    assert torch.equal(restored[1], state[1])
    assert sorted(flatten(state)) == ["carry.0.0", "carry.1"]


def test_split_states_are_concatenated_again():
    state = create_state()
    parts = [map_state(lambda t, i=i: t[i : i + 1], state) for i in range(3)]
    assert torch.equal(concat_states(parts)[0][0], state[0][0])


def test_an_empty_state_stays_empty():
    assert flatten(None) == {}
    assert unflatten(get_structure(None), {}) is None
    assert concat_states([None, None]) is None
    assert detach(None) is None
