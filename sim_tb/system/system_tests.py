"""A batch through Dispatch, the experts and Combine on the RTL of the whole system."""

from __future__ import annotations

import json
import time
from pathlib import Path

import cocotb

from dysharp.sim_tb.system.batch import read_batch
from dysharp.sim_tb.system.env import System

RESULT = "result.json"


@cocotb.test()
async def batch(dut):
    """Every memory word and every result bit as the golden model has them; writes result.json."""
    trace = read_batch()
    started = time.perf_counter()
    system = System(dut, trace.config, trace.protocol())
    bench = system.bench
    control = await system.start()
    result = {"setup_cycles": bench.cycle, "cycles": {}, "utilisation": {}, "links": {}}
    slots = None
    for stage, name in enumerate(("dispatch", "combine")):
        answers = await system.stage(stage)
        await bench.cycles(64)
        result["cycles"][name] = system.cycles()
        use = system.links.utilisation()
        result["utilisation"][name] = use["utilisation"]
        result["links"][name] = use | {"flits_by_link": system.links.measure()}
        if stage == 0:
            slots = system.check_dispatch(answers)
            if slots is None:
                break
            system.run_experts(slots)
        else:
            assert slots is not None
            system.check_combine(answers, slots)
    result["counters"] = await control.counters()
    for line in control.unexpected_errors(slots):
        system.check.note(line)
    check = system.check
    result["check"] = {"values": check.values, "mismatches": check.mismatches}
    result["shown"] = check.shown
    result["total_cycles"] = bench.cycle
    result["seconds"] = time.perf_counter() - started
    result["seed"] = bench.seed
    Path(RESULT).write_text(json.dumps(result, indent=1, default=int))
    system.check_protocol()
