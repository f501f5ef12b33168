"""Handing a batch over to the process in which the simulator runs."""

from __future__ import annotations

import json
import os

from dysharp.model.trace import Trace, read_trace

__all__ = ["read_batch"]


def read_batch() -> Trace:
    """The trace that ``run_system`` left for this process."""
    return read_trace(json.loads(os.environ["DYSHARP_PARAMS"])["trace"])
