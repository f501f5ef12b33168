"""What the tests of blocks share."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that is marked with ``mutants`` runs for each ``mutant`` of these.

    Of those that are simulated every third one, and nightly all: each builds a program of its own.
    """
    marker = metafunc.definition.get_closest_marker("mutants")
    if marker is None:
        return
    sampled = [
        pytest.param(
            mutant,
            id=mutant.name.replace(" ", "_"),
            marks=[pytest.mark.nightly] if number % 3 and "::" not in mutant.test else [],
        )
        for number, mutant in enumerate(marker.args[0])
    ]
    metafunc.parametrize("mutant", sampled)
