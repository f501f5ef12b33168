"""Each checker bites: a broken RTL is caught by the test that the list names."""

import pytest

from dysharp.hw.errors import UserError
from dysharp.sim_tb.mutants import MUTANTS
from dysharp.sim_tb.mutation import Mutant, run_mutant


@pytest.mark.slow
@pytest.mark.mutants(MUTANTS)
def test_mutant_is_caught(mutant):
    assert mutant.test in run_mutant(mutant)


def test_an_edit_that_changes_nothing_is_told():
    stale = Mutant(
        "stale",
        block="parser",
        file="switch/parser.py",
        before="no such text",
        after="",
        test="random_frames",
    )
    with pytest.raises(UserError, match="before: must occur once, not 0 times"):
        run_mutant(stale)


@pytest.mark.slow
def test_a_harmless_edit_survives():
    harmless = Mutant(
        "harmless",
        block="parser",
        file="switch/parser.py",
        before='"""Check the header, follow',
        after='"""Follow',
        test="cut_or_padded",
    )
    with pytest.raises(AssertionError, match="mutant survived cut_or_padded: harmless"):
        run_mutant(harmless)


def test_a_mutant_that_does_not_run_proves_nothing():
    """A test that fails for want of the unit itself once would have counted as caught."""
    broken = Mutant(
        "broken",
        file="alu/adder.py",
        before='__all__ = ["FloatAdder"]',
        after="raise ValueError('no adder')",
        test="tests/hw/alu/test_traps.py::test_zeros[own-e4m3]",
    )
    with pytest.raises(AssertionError, match="mutant proves nothing: broken"):
        run_mutant(broken)
