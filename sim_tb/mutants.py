"""The mutants: what each breaks, and the named test that catches it.

``docs/mutants.md`` shows the list; ``tests/sim_tb/test_mutants.py`` runs it.
"""

from __future__ import annotations

from dysharp.sim_tb.mutation import Mutant

__all__ = ["MUTANTS"]

_PARSER, _ROUTE, _REPLICATE = "switch/parser.py", "switch/route.py", "switch/replicate.py"
_REDUCTION, _INTAKE = "switch/reduction.py", "switch/intake.py"
_SESSIONS, _PRUNE = "switch/session_table.py", "switch/prune.py"
_TLB, _MANAGER = "gpu/al_tlb.py", "gpu/al_manager.py"
_ADDER = "alu/adder.py"
_TRAPS = "tests/hw/alu/test_traps.py"
_ISOLATION = "tests/hw/switch/test_isolation_formal.py"

MUTANTS = (
    Mutant(
        "a packet that was cut or padded is not marked",
        block="parser",
        file=_PARSER,
        before="is_last & (padding | misframed | flit.poison)",
        after="is_last & flit.poison",
        test="cut_or_padded",
    ),
    Mutant(
        "a store may run one flit past its chunk",
        block="parser",
        file=_PARSER,
        before="(first + touched <= chunk_flits)",
        after="(first + touched <= chunk_flits + 1)",
        test="malformed/case=store_crosses_chunk",
    ),
    Mutant(
        "a reserved command is dropped without an answer",
        block="parser",
        file=_PARSER,
        before="rule.answered | ~rule.known",
        after="rule.answered",
        test="malformed/case=reserved_command",
    ),
    Mutant(
        "the slot behind the last one in use exists",
        block="route",
        file=_ROUTE,
        before="(slot >= slots)",
        after="(slot > slots)",
        test="refused/case=slot_that_is_not_used",
    ),
    Mutant(
        "only the last TX flit names targets",
        block="route",
        file=_ROUTE,
        before="named.eq(all_named)",
        after="named.eq(read.targets)",
        test="random_requests",
    ),
    Mutant(
        "targets need not be members of the object",
        block="route",
        file=_ROUTE,
        before="outsiders.eq(now.tx & (all_named & ~now.members).any())",
        after="outsiders.eq(0)",
        test="refused/case=target_is_no_member",
    ),
    Mutant(
        "a packet waits until all of its queues have room",
        block="ingress",
        file=_REPLICATE,
        before="wanted & credits_left.fits",
        after="Mux((wanted & ~credits_left.fits).any(), 0, wanted)",
        test="no_output_holds_another",
    ),
    Mutant(
        "replicas leave before their session is reserved",
        block="ingress",
        file=_REPLICATE,
        before="records.o.valid & (~needs_session | reserved)",
        after="records.o.valid",
        test="nothing_leaves_before_its_session",
    ),
    Mutant(
        "the first contribution is added to what stood there",
        block="reduction",
        file=_REDUCTION,
        before="alu.load.eq(operand.fresh)",
        after="alu.load.eq(0)",
        test="first_is_loaded",
    ),
    Mutant(
        "a late answer counts for the session's next use",
        block="reduction",
        file=_SESSIONS,
        before="is_this_use.eq(expected.generation == self.claim.id.generation)",
        after="is_this_use.eq(1)",
        test="late_contribution_changes_nothing",
    ),
    Mutant(
        "a poisoned contribution is summed like any other",
        block="reduction",
        file=_INTAKE,
        before="is_poisoned.eq(flit.last & flit.poison)",
        after="is_poisoned.eq(0)",
        test="smallest_status_wins",
    ),
    Mutant(
        "pruning forgets the rest of a long list",
        block="prune",
        file=_PRUNE,
        before="owes_rest.eq(leaves_rest)",
        after="owes_rest.eq(0)",
        test="every_remainder",
    ),
    Mutant(
        "the AL-TLB does not tell experts apart",
        block="al_tlb",
        file=_TLB,
        before="self._object(key), slot, key.aidx)",
        after="self._object(key), key.aidx)",
        test="similar_keys_are_told_apart",
    ),
    Mutant(
        "flushing an object forgets nothing",
        block="al_tlb",
        file=_TLB,
        before="epochs[self._object(self.flush)] + 1)",
        after="epochs[self._object(self.flush)])",
        test="flush_forgets_one_object",
    ),
    Mutant(
        "a walk overtakes the pending write of its entry",
        block="hub",
        file=_MANAGER,
        before="axi.arvalid.eq(~pending)",
        after="axi.arvalid.eq(1)",
        test="a_walk_waits_for_the_write_of_its_entry",
    ),
    Mutant(
        "an expert takes one row more than it has",
        block="hub",
        file=_MANAGER,
        before="m.Elif(self.quota.used < self.quota.capacity)",
        after="m.Elif(self.quota.used <= self.quota.capacity)",
        test="a_full_expert_refuses",
    ),
    Mutant(
        "a tie goes away from zero",
        file=_ADDER,
        before="significand[low + 1] & (significand[low + 2] | significand[: low + 1].any())",
        after="significand[low + 1]",
        test=f"{_TRAPS}::test_half_goes_to_the_even_one[own-bf16]",
    ),
    Mutant(
        "a sum is truncated",
        file=_ADDER,
        before='named(m, up, "up")',
        after="Const(0, 1)",
        test=f"{_TRAPS}::test_more_than_half_goes_up[own-bf16]",
    ),
    Mutant(
        "what alignment shifts out is forgotten",
        file=_ADDER,
        before="sticky = normal[:2].any() | lost",
        after="sticky = normal[:2].any()",
        test=f"{_TRAPS}::test_one_bit_far_below_breaks_a_tie[own-bf16]",
    ),
    Mutant(
        "alignment shifts by 7 at most",
        file=_ADDER,
        before="steps = min((width - 1).bit_length(), len(gap))",
        after="gap = Mux(gap > 7, 7, gap); steps = min((width - 1).bit_length(), len(gap))",
        test=f"{_TRAPS}::test_one_and_the_smallest_normal[own-bf16]",
    ),
    Mutant(
        "+0 and -0 make -0",
        file=_ADDER,
        before="Mux(same & even, sign_a & b.sign, ",
        after="Mux(same & even, sign_a | b.sign, ",
        test=f"{_TRAPS}::test_zeros[own-bf16]",
    ),
    Mutant(
        "the parser of responses waits for the answers to wrong requests",
        file="switch/ingress.py",
        before="rsp_parser.error.ready.eq(1)",
        after="rsp_parser.error.ready.eq(errors.i.ready)",
        test=f"{_ISOLATION}::test_no_request_holds_a_response_on_its_way_in",
    ),
    Mutant(
        "who is no member may send, if the targets are members",
        file="switch/route.py",
        before="outsiders | now.stranger",
        after="outsiders",
        test=f"{_ISOLATION}::test_a_stranger_is_refused",
    ),
)
"""All mutants, along the way of the data."""
