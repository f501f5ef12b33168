"""The CUDA driver API's names, as far as multicast objects need them."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from dysharp.hw.packet import Attr, Dtype, Op

__all__ = [
    "ELEMENT_BYTES",
    "CUDymulticastObjectProp",
    "CUdymulticastStage",
    "CUresult",
    "CudaError",
]

ELEMENT_BYTES = {
    Dtype.U32: 4,
    Dtype.S32: 4,
    Dtype.U64: 8,
    Dtype.S64: 8,
    Dtype.B32: 4,
    Dtype.B64: 8,
    Dtype.F16: 2,
    Dtype.BF16: 2,
    Dtype.F32: 4,
    Dtype.F64: 8,
    Dtype.E4M3: 1,
    Dtype.E5M2: 1,
}
"""Bytes of an element on the wire."""


class CUresult(IntEnum):
    """Results, with the driver's numbers."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_NOT_SUPPORTED = 801


class CudaError(RuntimeError):
    """A call that did not return ``CUDA_SUCCESS``; nothing has changed.

    Parameters
    ----------
    result : the driver's name for it
    call : the function that was called
    rule : what was broken, as a sentence

    Attributes
    ----------
    result : as given
    """

    def __init__(self, result: CUresult, call: str, rule: str):
        self.result = result
        super().__init__(f"{call}: {result.name}: {rule}")


class CUdymulticastStage(IntFlag):
    """Stages that an object serves."""

    DISPATCH = 1
    COMBINE = 2
    BOTH = 3


@dataclass(frozen=True)
class CUDymulticastObjectProp:
    """Properties of a multicast object.

    Parameters
    ----------
    numDevices : GPUs that will be added
    bsize : bytes of a token's block, one number or one for each stage; multiples of 16
    slots : local experts of each GPU; an expert's id is ``device << split | slot``, with
        ``split = ceil(log2(slots))``
    stage : stages that may be used; the hardware refuses addresses of the other one
    hsize : elements that Combine adds up in a block, 0 if it is not told
    dtype, op, acc : what a packet without an attr of its own reduces
    group : devices that an empty target list means; None for all that are added
    preloaded : the AL table is written by software, and a store to an unmapped entry is an error
    base : multimem address of the object; None to let the runtime choose
    handleTypes, flags : must be 0
    """

    numDevices: int
    bsize: int | tuple[int, int]
    slots: int
    stage: CUdymulticastStage = CUdymulticastStage.BOTH
    hsize: int = 0
    dtype: Dtype = Dtype.BF16
    op: Op = Op.ADD
    acc: int = 1
    group: tuple[int, ...] | None = None
    preloaded: bool = False
    base: int | None = None
    handleTypes: int = 0
    flags: int = 0

    @property
    def block(self) -> tuple[int, int]:
        """Bytes of a block by stage; 0 for a stage that is not served."""
        dispatch, combine = (self.bsize, self.bsize) if isinstance(self.bsize, int) else self.bsize
        return (
            dispatch if CUdymulticastStage.DISPATCH in self.stage else 0,
            combine if CUdymulticastStage.COMBINE in self.stage else 0,
        )

    @property
    def split(self) -> int:
        """Bits of a slot in an expert's id."""
        return (self.slots - 1).bit_length()

    @property
    def attr(self) -> int:
        """The attr field that stands for the defaults."""
        return Attr.const({"dtype": self.dtype, "op": self.op, "acc": self.acc}).as_bits()
