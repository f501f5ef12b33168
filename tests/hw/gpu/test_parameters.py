"""Constructors of the source side say what is wrong with their parameters."""

import pytest

from dysharp.hw.gpu.list_fetch import ListFetch
from dysharp.hw.gpu.multimemq import MultimemQ
from dysharp.hw.gpu.outstanding import Outstanding
from dysharp.hw.gpu.tile_table import TileTable
from dysharp.hw.gpu.token_table import TokenTable


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ListFetch(data_width=64), "Data width must be 128, 256, 512 or 1024, not 64"),
        (lambda: ListFetch(data_width=128, beats=16), "Beats must be at least 17, not 16"),
        (lambda: ListFetch(data_width=512, flits=15), "Flits must be at least 16, not 15"),
        (lambda: Outstanding(entries=5000, beats=16), "Entries must be from 1 to 4096, not 5000"),
        (lambda: Outstanding(entries=4, beats=15), "Beats must be at least 16, not 15"),
        (
            lambda: MultimemQ(outstanding=4, chunk_bytes=64, data_width=128),
            "Chunk bytes must be 128 or 256, not 64",
        ),
        (
            lambda: TileTable(entries=12, objects=16, slots=64),
            "Entries must be a power of two, not 12",
        ),
        (lambda: TokenTable(entries=1), "Entries must be a power of two of at least 2, not 1"),
    ],
)
def test_wrong_parameters_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
