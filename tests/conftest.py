"""What all tests share."""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection.

    Python 3.11 sometimes ends with "AST constructor recursion depth mismatch" if garbage is
    collected while pytest rewrites the assertions of a module.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
