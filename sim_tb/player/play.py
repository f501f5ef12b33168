"""Playing requests on a switch: the one function that a bench or a test calls."""

from __future__ import annotations

from collections.abc import Sequence

from dysharp.hw.config import Config
from dysharp.sim_tb.player.requests import Played, Requests
from dysharp.sim_tb.route.model import ObjectSpec

__all__ = ["play"]


def play(
    config: Config,
    requests: Requests,
    *,
    objects: Sequence[ObjectSpec] = (),
    window: int = 0,
    loads: int = 0,
    stores: int = 0,
    latency: int | tuple[int, int] = 0,
    stalls: float = 0.0,
    seed: int = 1,
    limit: int = 20_000,
    bin_cycles: int = 1000,
) -> Played:
    """Send requests through the switch of a configuration, answer its replicas, check everything.

    Every replica and answer is compared flit by flit with what the model of the switch says, in
    the order of its (source, destination, class); every request must be answered once; counters
    must agree. Sums are checked in the order in which the switch says that it took them.

    Parameters
    ----------
    config : the configuration; its switch is built, or found
    requests : what is sent
    objects : the object table, entry by entry, set up through the runtime over the registers
    window : most unanswered requests of a stream; 0 for any number
    loads, stores : most unanswered loads, and other requests, of a port; 0 for any number. Tags
        bound all of them together to 4096
    latency : cycles that a GPU takes to answer, from the last flit of a replica to the first one of
        its answer; a pair is drawn from, ends included
    stalls : chance that an interface stalls in a cycle
    seed : of everything random
    limit : cycles without any flit after which the run has hung
    bin_cycles : cycles of a bin of :attr:`Played.bins`

    Returns
    -------
    Played
        :attr:`Played.mismatches` says what was wrong; a hang is a mismatch too.

    Raises
    ------
    UserError
        If a parameter does not fit, or the simulation cannot be built.
    """
    raise NotImplementedError
