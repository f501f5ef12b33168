"""The area of a design as a picture: a bar a block, in the colours of what is inside it."""

from dataclasses import replace
from pathlib import Path

from dysharp.synth.tree import Block

__all__ = ["draw"]

BARS = 12
SEGMENTS = 6
OPENED = 0.35
"""A block with more of the whole than this is shown by its parts."""
SUFFIXES = (".svg", ".png")


def draw(tree: Block, stem: Path, *, title: str, unit: str) -> list[Path]:
    """Draw a tree; what was written.

    Parameters
    ----------
    tree : the areas
    stem : path of the pictures without a suffix; one is written for each of ``SUFFIXES``
    title : what is shown
    unit : what a gate equivalent is
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    bars, palette = _bars(tree), colormaps["Set2"]
    figure = Figure(figsize=(11, 1.6 + 0.42 * len(bars)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 1), sharey=True)
    widest = max((block.ge for block in bars), default=0.0) or 1.0
    for row, block in enumerate(bars):
        edge = 0.0
        for number, (name, ge) in enumerate(_segments(block)):
            colour = palette(number) if name != "own logic" else "0.8"
            left.barh(row, ge / 1e3, left=edge / 1e3, color=colour, edgecolor="white")
            if ge > widest * (0.03 + 0.009 * len(name)):
                left.text(
                    (edge + ge / 2) / 1e3, row, name, ha="center", va="center", fontsize="x-small"
                )
            edge += ge
        share = block.ge / (tree.ge or 1.0)
        left.text(edge / 1e3, row, f" {share:.1%}", va="center", fontsize="small")
        right.barh(row, block.memory_bits / 1e3, color="0.6")
    left.set_yticks(range(len(bars)), [_label(block) for block in bars])
    left.invert_yaxis()
    left.margins(x=0.08)
    left.set_xlabel(f"thousand gate equivalents ({unit})")
    right.set_xlabel("thousand bits of memory")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(left=False)
    figure.suptitle(title)
    paths = [stem.with_suffix(suffix) for suffix in SUFFIXES]
    for path in paths:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _label(block: Block) -> str:
    return f"{block.name}  x{block.instances}" if block.instances > 1 else block.name


def _bars(tree: Block) -> list[Block]:
    """The blocks that get a bar, named by their paths; they add up to the whole."""
    bars = _open(tree, "", tree.ge) or [tree]
    bars.sort(key=lambda block: -block.ge)
    if len(bars) > BARS:
        rest = bars[BARS - 1 :]
        other = Block("other", 1, sum(b.ge for b in rest), sum(b.memory_bits for b in rest))
        bars = [*bars[: BARS - 1], other]
    return bars


def _open(block: Block, path: str, total: float) -> list[Block]:
    """A block's children, the large ones opened in turn, and its own logic."""
    bars = []
    for child, kind in zip(block.children, block.kinds(), strict=True):
        name = f"{path}/{kind}" if path else kind
        if child.ge > OPENED * total and child.children:
            bars += _open(child, name, total)
        else:
            bars.append(replace(child, name=name))
    if block.children and (block.own_ge or block.own_bits):
        name = f"{path}/own logic" if path else "own logic"
        bars.append(Block(name, block.instances, block.own_ge, block.own_bits))
    return bars


def _segments(block: Block) -> list[tuple[str, float]]:
    """What a bar is made of; adds up to the block."""
    if not block.children:
        return [("", block.ge)]
    named = zip(block.kinds(), block.children, strict=True)
    shown = [(kind, child.ge) for kind, child in named]
    rest = sum(ge for _, ge in shown[SEGMENTS:])
    return [*shown[:SEGMENTS], *([("other", rest)] if rest else []), ("own logic", block.own_ge)]
