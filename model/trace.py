"""Trace files: one batch with everything that is needed to run and check it again.

A trace is a ``.npz`` file: five arrays and a JSON header (an array of bytes named ``header``) with
schema version, preset, configuration, model, seed, policies and a sha256 of each array. Reading
checks all of it. The same arguments write the same bytes.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.config import Config, GpuConfig, SwitchConfig
from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BYTES
from dysharp.model.experts import telling_weights
from dysharp.model.models import Model, get_model
from dysharp.model.numerics_array import f32_to_bf16_array
from dysharp.model.placement import Placement
from dysharp.model.policies import Accumulation, PlacementKind, Policies
from dysharp.model.protocol import ELEMENT_BYTES, Protocol
from dysharp.model.routing import Routing, generate, load_routing
from dysharp.model.traffic import Comparison, compare_traffic

__all__ = [
    "SCHEMA",
    "Trace",
    "default_policies",
    "default_tokens",
    "make_trace",
    "read_trace",
    "write_trace",
]

SCHEMA = 1
"""Version of the file's layout; another version is refused."""

DEFAULT_STAGE_FLITS = 55_000
"""Flits of a stage on a link if no number of tokens is asked for: enough to measure its use."""

ARRAYS = ("topk_idx", "topk_weights", "tokens_per_gpu", "placement", "payload")
MAX_ELEMENTS = 1 << 31
"""Elements of a batch: 4 GiB of payload. Far more than this ends in a lack of memory."""
ACCUMULATION = {
    "arrival": Accumulation.GPU_LIST_THEN_ARRIVAL,
    "rank": Accumulation.GPU_LIST_THEN_PORT_RANK,
    "exact": Accumulation.GPU_LIST_THEN_EXACT,
}


@dataclass(frozen=True, eq=False)
class Trace:
    """A batch for one configuration.

    Parameters
    ----------
    config, model, seed, policies : what it was made for
    source : the routing's generator or file, ``payload_kind`` and ``weights_kind`` what was drawn
    routing, placement : who goes where
    payload : uint16 [T, hidden], bf16
    """

    config: Config
    model: Model
    seed: int
    policies: Policies
    source: str
    payload_kind: str
    weights_kind: str
    routing: Routing
    placement: Placement
    payload: NDArray[np.uint16]

    @property
    def block_bytes(self) -> int:
        """Bytes of a token's block."""
        return self.payload.shape[1] * ELEMENT_BYTES

    @property
    def tokens(self) -> int:
        """Tokens of all GPUs."""
        return len(self.payload)

    @property
    def packets(self) -> int:
        """Packets that the sources send in Dispatch and Combine."""
        protocol = self.protocol()
        return 2 * protocol.chunks * int((protocol.counts > 0).sum())

    @property
    def flits(self) -> int:
        """Flits of those packets."""
        protocol = self.protocol()
        return protocol.packet_flits(0) + protocol.packet_flits(1)

    def arrays(self) -> dict[str, NDArray]:
        """The arrays of the file."""
        return {
            "topk_idx": self.routing.topk_idx,
            "topk_weights": self.routing.topk_weights,
            "tokens_per_gpu": np.array(self.routing.tokens, np.int64),
            "placement": self.placement.table,
            "payload": self.payload,
        }

    def header(self) -> dict[str, Any]:
        """The header of the file."""
        return {
            "schema": SCHEMA,
            "preset": self.config.name,
            "config": asdict(self.config),
            "model": asdict(self.model),
            "seed": self.seed,
            "policies": self.policies.to_dict(),
            "routing": self.source,
            "payload": self.payload_kind,
            "weights": self.weights_kind,
            "checksums": {name: _checksum(array) for name, array in self.arrays().items()},
        }

    def protocol(self, **options) -> Protocol:
        """The golden model of this batch; options as of :class:`Protocol`."""
        return Protocol(
            self.routing,
            self.payload,
            self.placement,
            policies=self.policies,
            chunk_bytes=self.config.chunk_bytes,
            links=self.config.links,
            **options,
        )

    def under(self, config: Config) -> "Trace":
        """The same batch for another configuration, whose order of accumulation then holds."""
        accumulation = default_policies(config).accumulation
        policies = replace(self.policies, accumulation=accumulation)
        return replace(self, config=config, policies=policies)

    def save(self, path: str | Path) -> Path:
        """Write the file (see :func:`write_trace`); its path."""
        write_trace(self, path)
        return Path(path)

    def traffic(self) -> Comparison:
        """Flits under DeepEP-normal and DySHARP."""
        return compare_traffic(
            self.routing,
            self.placement,
            block_bytes=self.block_bytes,
            policies=self.policies,
            chunk_bytes=self.config.chunk_bytes,
            links=self.config.links,
        )


def default_policies(config: Config) -> Policies:
    """The hardware's own answers, with the order of accumulation that a configuration has."""
    return Policies(accumulation=ACCUMULATION[config.switch.order])


def default_tokens(config: Config, model: Model) -> int:
    """Tokens of each GPU that put :data:`DEFAULT_STAGE_FLITS` flits on a link in either stage.

    At its narrowest a token costs a link the answers of the GPUs that it reaches in Combine.
    """
    data = model.hidden * ELEMENT_BYTES // FLIT_BYTES
    chunks = -(-model.hidden * ELEMENT_BYTES // config.chunk_bytes)
    kept = model.experts // model.groups * model.top_groups
    gpus = max(1.0, config.gpus * model.top_groups / model.groups)
    missed = 1.0
    for taken in range(model.top_k):
        missed *= max(0.0, kept - kept / gpus - taken) / (kept - taken)
    reached = gpus * (1 - missed)
    return math.ceil(DEFAULT_STAGE_FLITS * config.links / ((data + chunks) * reached))


def make_trace(
    config: Config,
    model: Model | str,
    tokens: int | Sequence[int] | None = None,
    seed: int = 0,
    *,
    routing: str | Path | None = None,
    phy2log: Any = None,
    policies: Policies | None = None,
    payload: str = "normal",
    weights: str = "gate",
    hidden: int | None = None,
    **options,
) -> Trace:
    """Make a batch.

    Parameters
    ----------
    config, model : hardware, and model or its name
    tokens : tokens of each GPU, one number for all or one each; :func:`default_tokens` if None.
        With a routing file the first so many of each GPU's rows are taken (all if None), and the
        trace's source says so if there are more
    seed : decides everything that is drawn
    routing : a generator's name (see :func:`~dysharp.model.routing.generate`), or the path of a
        ``.npy`` or ``.npz`` file of DeepEP ``topk_idx``; ``auto`` if None
    phy2log : placement map [gpus * slots] or [gpus, slots]; contiguous if None
    policies : :func:`default_policies` if None
    payload : ``normal`` numbers or random ``bits`` (NaN, infinities and subnormals too)
    weights : the ``gate``'s, or ``telling`` ones, under which results depend on the order of sums
    hidden : elements of a token if not the model's
    options : of the generator

    Raises
    ------
    UserError
        For whatever does not fit; the message says what to do.
    """
    if isinstance(model, str):
        model = get_model(model)
    if hidden is not None:
        model = replace(model, hidden=hidden)
    policies = policies or default_policies(config)
    if phy2log is None:
        placement = Placement.contiguous(experts=model.experts, gpus=config.gpus)
    else:
        placement = Placement.from_phy2log(phy2log, experts=model.experts, gpus=config.gpus)
    policies = replace(policies, placement=placement.kind)
    if placement.slots > config.gpu.slots:
        raise UserError(
            f"Experts of a GPU must be at most gpu.slots = {config.gpu.slots}, not "
            f"{placement.slots} ({model.experts} experts of {model.name} on "
            f"{config.gpus} GPUs)"
        )
    if isinstance(routing, Path) or (routing or "").endswith((".npy", ".npz")):
        whole = load_routing(str(routing), experts=model.experts, gpus=config.gpus)
        per_gpu = whole.tokens if tokens is None else _per_gpu(tokens, config.gpus)
        batch = _head(whole, per_gpu)
        source = Path(str(routing)).name
        if batch.tokens != whole.tokens:
            source += f", the first {max(per_gpu)} tokens of each GPU"
    else:
        source = routing or "auto"
        per_gpu = _per_gpu(default_tokens(config, model) if tokens is None else tokens, config.gpus)
        _check_size(sum(per_gpu), model)
        batch = generate(source, model=model, tokens=per_gpu, seed=seed, **options)
    rng = np.random.default_rng([seed, 1])
    if weights == "telling":
        batch = replace(batch, topk_weights=telling_weights(rng, batch.topk_idx, model.experts))
    elif weights != "gate":
        raise UserError(f"Weights must be gate or telling, not {weights!r}")
    return Trace(
        config,
        model,
        seed,
        policies,
        source,
        payload,
        weights,
        batch,
        placement,
        _draw(rng, payload, (len(batch.topk_idx), model.hidden)),
    )


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace file.

    Raises
    ------
    UserError
        If the file cannot be written.
    """
    header = np.frombuffer(json.dumps(trace.header(), sort_keys=True).encode(), np.uint8)
    arrays: Mapping[str, Any] = {"header": header, **trace.arrays()}
    try:
        with open(path, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise UserError(f"{path}: Trace cannot be written: {error.strerror}") from None


def read_trace(path: str | Path) -> Trace:
    """Read a trace file and check it.

    Raises
    ------
    UserError
        If it is unreadable, of another schema, incomplete, or an array is not what it was.
    """
    try:
        return _read_trace(path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _read_trace(path: str | Path) -> Trace:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise UserError("Trace must exist") from None
    except KeyError:
        raise UserError("Trace must have a header") from None
    except IsADirectoryError:
        raise UserError("Trace must be a file, not a folder") from None
    except (TypeError, AttributeError):
        raise UserError("Trace must be a readable .npz, not a single array") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "pickled objects are refused" if "pickle" in str(error) else str(error)
        raise UserError(f"Trace must be a readable .npz with a JSON header: {reason}") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        found = header.get("schema") if isinstance(header, dict) else None
        raise UserError(f"Trace schema must be {SCHEMA}, not {found!r}; make the trace again")
    for name in ARRAYS:
        if name not in arrays:
            raise UserError(f"Trace must hold the array {name}")
        if _checksum(arrays[name]) != header.get("checksums", {}).get(name):
            raise UserError(
                f"Trace array {name} must have the checksum of its header; the file "
                f"is damaged or was changed"
            )
    try:
        config = dict(header["config"])
        config = Config(
            **{
                **config,
                "switch": SwitchConfig(**config["switch"]),
                "gpu": GpuConfig(**config["gpu"]),
            }
        )
        model = Model(**{**header["model"], "aliases": tuple(header["model"]["aliases"])})
        policies = Policies.from_dict(header["policies"])
        names = header["routing"], header["payload"], header["weights"]
        seed = int(header["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"Trace header must be complete: {error}") from None
    routing = Routing(
        arrays["topk_idx"],
        arrays["topk_weights"],
        tuple(arrays["tokens_per_gpu"].tolist()),
        model.experts,
    )
    placement = Placement(arrays["placement"], model.experts, PlacementKind(policies.placement))
    return Trace(config, model, seed, policies, *names, routing, placement, arrays["payload"])


def _checksum(array: NDArray) -> str:
    """sha256 of type, shape and content."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = f"{little.dtype.str}{list(little.shape)}".encode()
    return hashlib.sha256(text + little.tobytes()).hexdigest()


def _per_gpu(tokens: int | Sequence[int], gpus: int) -> tuple[int, ...]:
    table = (tokens,) * gpus if isinstance(tokens, int) else tuple(tokens)
    if len(table) != gpus or min(table) < 0:
        raise UserError(f"Tokens must be 0 or more for each of {gpus} GPUs, not {tokens}")
    return table


def _check_size(rows: int, model: Model) -> None:
    if rows * model.hidden > MAX_ELEMENTS:
        raise UserError(
            f"Tokens must be at most {MAX_ELEMENTS // model.hidden} of {model.name} on all GPUs "
            f"together, not {rows}"
        )


def _head(batch: Routing, tokens: tuple[int, ...]) -> Routing:
    """The first rows of each GPU, at most ``tokens`` of them."""
    first = np.cumsum([0, *batch.tokens[:-1]])
    token = np.arange(len(batch.topk_idx)) - first[batch.source]
    keep = token < np.array(tokens)[batch.source]
    counts = tuple(min(have, want) for have, want in zip(batch.tokens, tokens, strict=True))
    return Routing(batch.topk_idx[keep], batch.topk_weights[keep], counts, batch.experts)


def _draw(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> NDArray[np.uint16]:
    if kind == "bits":
        return rng.integers(0, 1 << 16, shape, np.uint16)
    if kind == "normal":
        return f32_to_bf16_array(rng.standard_normal(shape, np.float32))
    raise UserError(f"Payload must be normal or bits, not {kind!r}")
