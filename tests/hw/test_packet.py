"""The wire format: bit positions as documented, and a codec that is its own inverse."""

from dataclasses import replace

import pytest
from amaranth import Module, Signal
from amaranth.lib.data import Layout
from amaranth.sim import Simulator
from hypothesis import given
from hypothesis import strategies as st

from dysharp.hw import packet as pk
from dysharp.hw.packet import CMD_RULES, Cmd, Header, MultimemAddress, Packet, PacketError

HEADER_BITS = {  # name: (low, high), as the wire format's description gives them
    "crc": (0, 24),
    "len": (25, 29),
    "ack": (30, 36),
    "cmd": (37, 41),
    "ae": (42, 42),
    "be": (43, 43),
    "tx": (44, 44),
    "tag": (45, 63),
    "addr": (64, 127),
}
MULTIMEM_BITS = {"maddr": (64, 111), "stage": (112, 112), "count": (113, 119), "attr": (120, 127)}


@pytest.mark.parametrize("name", HEADER_BITS)
def test_header_field_has_its_bits(name):
    field = Layout.cast(Header)[name]
    assert (field.offset, field.offset + field.width - 1) == HEADER_BITS[name]


@pytest.mark.parametrize("name", MULTIMEM_BITS)
def test_multimem_address_field_has_its_bits(name):
    field = Layout.cast(MultimemAddress)[name]
    assert (64 + field.offset, 64 + field.offset + field.width - 1) == MULTIMEM_BITS[name]


def test_tag_and_attr_list_high_bits_first():
    """{port 7, local 12}, {port, generation 4, session 8} and {acc, op, dtype}."""
    header = Header.const({"tag": {"local": 0xABC, "port": 0x55}, "addr": 0}).as_bits()
    assert (header >> 45) & 0x7FFFF == 0x55 << 12 | 0xABC
    replica = pk.ReplicaTag.const({"session": 0xC3, "generation": 9, "port": 0x55}).as_bits()
    assert replica == 0x55 << 12 | 9 << 8 | 0xC3
    attr = pk.Attr.const({"dtype": pk.Dtype.BF16, "op": pk.Op.MAX, "acc": 1}).as_bits()
    assert attr == 1 << 7 | 2 << 4 | 8


def test_a_list_of_fewer_than_128_targets_reads_as_the_papers():
    """With attr = 0 bits 127:113 are a plain 15-bit target count."""
    packet = Packet.multimem(Cmd.MM_ST, maddr=0x1230, targets=[5] * 100, data=[1] * 8)
    assert packet.encode()[0] >> 113 == 100


def test_targets_fill_slots_from_bit_0_and_unused_ones_hold_ffff():
    flits = Packet.multimem(Cmd.MM_LDR, maddr=0, targets=range(1, 11)).encode()
    assert len(flits) == 3
    assert flits[1] & 0xFFFF == 1 and flits[1] >> 112 == 8
    assert flits[2] == (1 << 128) - (1 << 32) | 10 << 16 | 9


words = st.integers(0, 2**128 - 1)


@st.composite
def packets(draw):
    """Any packet of wire format v1 that a sender may make."""
    cmd = draw(st.sampled_from(Cmd))
    rule = CMD_RULES[cmd]
    tx = draw(st.booleans()) if rule.multimem is None else rule.multimem
    be = draw(words) if rule.byte_enable and draw(st.booleans()) else None
    most_data = min(rule.max_data, pk.MAX_BE_DATA_FLITS) if be is not None else rule.max_data
    data = draw(st.lists(words, min_size=rule.min_data, max_size=most_data))
    common = {"port": draw(st.integers(0, 127)), "local": draw(st.integers(0, 4095)), "be": be}
    if not tx:
        ae = draw(st.none() | words)
        return Packet.unicast(cmd, addr=draw(st.integers(0, 2**64 - 1)), ae=ae, data=data, **common)
    room = pk.MAX_FLITS - 1 - (be is not None) - len(data)
    ids = st.integers(0, 0xFFFE)
    most = min(pk.MAX_TARGETS, room * pk.TARGETS_PER_FLIT)
    targets = draw(st.lists(ids, max_size=most)) if rule.targets else []
    return Packet.multimem(
        cmd,
        maddr=draw(st.integers(0, 2**48 - 1)),
        stage=draw(st.integers(0, 1)),
        attr=draw(st.sampled_from([0, 0x88, 0x08, 0x29])),
        targets=targets,
        count=None if rule.targets else draw(st.integers(0, 127)),
        data=data,
        **common,
    )


@given(packets())
def test_decode_undoes_encode(packet):
    flits = packet.encode()
    assert len(flits) == packet.flits <= pk.MAX_FLITS
    assert Packet.decode(flits) == packet


@given(packets())
def test_hardware_reads_what_the_codec_wrote(packet):
    header = Header.from_bits(packet.encode()[0])
    assert header.cmd is packet.cmd
    assert (header.tag.port, header.tag.local) == (packet.tag_port, packet.tag_local)
    assert header.len == packet.flits - 1
    view = MultimemAddress.from_bits(header.addr)
    if packet.tx:
        assert (view.maddr, view.stage, view.count) == (packet.maddr, packet.stage, packet.count)
    else:
        assert header.addr == packet.addr


def test_wrong_length_and_reserved_commands_are_errors():
    flits = Packet.unicast(Cmd.RD, addr=0x10).encode()
    with pytest.raises(PacketError, match="len must be flits - 1"):
        Packet.decode([*flits, 0])
    reserved = 9 << HEADER_BITS["cmd"][0]
    with pytest.raises(PacketError, match="cmd must be a command"):
        Packet.decode([reserved])
    with pytest.raises(PacketError, match="at most 32 flits"):
        Packet.multimem(Cmd.MM_ST, maddr=0, targets=[0] * 127, data=[0] * 16).encode()
    cut = replace(Packet.multimem(Cmd.MM_LDR, maddr=0, targets=[1] * 9), targets=(1,))
    with pytest.raises(PacketError, match="2 TX flits"):
        Packet.decode(cut.encode())


def test_a_packet_prints_its_fields_by_name():
    text = str(Packet.multimem(Cmd.ERR, maddr=0x80, attr=9, count=3, port=2, local=7))
    assert "cmd=ERR" in text and "status=NOT_A_MEMBER" in text and "tag=2:0x007" in text


@pytest.mark.parametrize("links", [1, 2, 4, 8])
@pytest.mark.parametrize("chunk_bytes", pk.CHUNK_BYTES)
def test_link_formula_is_the_same_in_hardware_and_software(links, chunk_bytes):
    addresses = [0, chunk_bytes, 5 * chunk_bytes + 16, 0x1234_5678_9ABC, 2**48 - 1]
    address, link = Signal(48), Signal(4)
    m = Module()
    m.d.comb += link.eq(pk.link_of_chunk(address, links=links, chunk_bytes=chunk_bytes))

    async def bench(ctx):
        for value in addresses:
            ctx.set(address, value)
            expected = pk.link_of_chunk(value, links=links, chunk_bytes=chunk_bytes)
            assert ctx.get(link) == expected < links

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()


def test_link_formula_keeps_a_chunk_together_and_spreads_neighbours():
    links = [pk.link_of_chunk(a, links=4, chunk_bytes=128) for a in range(0, 128 * 16, 16)]
    per_chunk = [set(links[k : k + 8]) for k in range(0, len(links), 8)]
    assert all(len(chunk) == 1 for chunk in per_chunk)
    assert {link for chunk in per_chunk[:4] for link in chunk} == {0, 1, 2, 3}
