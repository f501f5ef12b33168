"""The CUDA driver API's names, as far as multicast objects need them."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from dysharp.hw.packet import Dtype, Op
from dysharp.model.numerics import FORMATS, attr_bits

__all__ = [
    "ELEMENT_BYTES",
    "CUDymulticastObjectProp",
    "CUdymulticastStage",
    "CUresult",
    "CudaError",
    "cudaDataType",
]

ELEMENT_BYTES = {dtype: form.bits // 8 for dtype, form in FORMATS.items()}
"""Bytes of an element on the wire."""


class cudaDataType(IntEnum):
    """Types of elements, with the numbers of CUDA's ``library_types.h``; those that are reduced.

    The wire's b32 and b64 have no name there.
    """

    CUDA_R_32F = 0
    CUDA_R_64F = 1
    CUDA_R_16F = 2
    CUDA_R_32I = 10
    CUDA_R_32U = 12
    CUDA_R_16BF = 14
    CUDA_R_64I = 24
    CUDA_R_64U = 26
    CUDA_R_8F_E4M3 = 28
    CUDA_R_8F_E5M2 = 29

    @property
    def dtype(self) -> Dtype:
        """The same type on the wire."""
        return _DTYPES[self]


_DTYPES = {
    cudaDataType.CUDA_R_32F: Dtype.F32,
    cudaDataType.CUDA_R_64F: Dtype.F64,
    cudaDataType.CUDA_R_16F: Dtype.F16,
    cudaDataType.CUDA_R_32I: Dtype.S32,
    cudaDataType.CUDA_R_32U: Dtype.U32,
    cudaDataType.CUDA_R_16BF: Dtype.BF16,
    cudaDataType.CUDA_R_64I: Dtype.S64,
    cudaDataType.CUDA_R_64U: Dtype.U64,
    cudaDataType.CUDA_R_8F_E4M3: Dtype.E4M3,
    cudaDataType.CUDA_R_8F_E5M2: Dtype.E5M2,
}


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
    dtype, op, acc : what a packet without an attr of its own reduces; the type by CUDA's name
        or by the wire's
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
    dtype: Dtype | cudaDataType = Dtype.BF16
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
    def element(self) -> Dtype:
        """The wire's type of an element."""
        return self.dtype.dtype if isinstance(self.dtype, cudaDataType) else self.dtype

    @property
    def attr(self) -> int:
        """The attr field that stands for the defaults."""
        return attr_bits(self.element, self.op, self.acc)
