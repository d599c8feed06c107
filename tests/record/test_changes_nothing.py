"""Recording changes nothing: results, gradients, parameters, optimizer state, random state, errors, and memory."""

import pytest

from .measure import outcome
from .scenarios import SCENARIOS


@pytest.mark.parametrize("how", ["call", "block"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_same_outcome_and_memory(name, how):
    plain, watched = outcome(SCENARIOS[name]), outcome(SCENARIOS[name], how)
    assert watched.picture == plain.picture
    assert (watched.profile.peak, watched.profile.end) == (plain.profile.peak, plain.profile.end)
