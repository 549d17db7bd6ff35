"""A device that is not there: torch and Triton believe in a GPU, tensors lie in ordinary memory.

Owns what candidate code can ask of a device and the answers it gets. Launches are handed to a
recorder and nothing is executed. Runs in the analysis child only: it replaces functions of torch.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from triton.backends.compiler import GPUTarget

from runner.analysis.targets import (
    MAX_THREADS_PER_BLOCK,
    REGISTERS,
    STATIC_SHARED,
    WARP_SIZE,
    Target,
)

DEVICE = torch.device("cuda", 0)


class Unsupported(RuntimeError):
    """The candidate asked the stand-in for something that only a real device can do."""


class Recorder(Protocol):
    """Who hears of launches (the kernel's hash, grid, arguments), questions and products."""

    def launched(self, key: str, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None: ...

    def assumed(self, question: str) -> None: ...

    def product(self, name: str) -> None: ...

    def registers(self, cubin: bytes) -> int: ...


class Driver:
    """What `triton.runtime.driver.set_active` takes: a target, device 0, and a launcher."""

    def __init__(self, target: Target, recorder: Recorder) -> None:
        self.target, self.recorder = target, recorder
        self.utils = DeviceUtilities(target, recorder)

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        names = list(source.signature)
        run_time = {each.name for each in source.fn.params if not each.is_constexpr}
        key = metadata.hash

        def launch(x: int, y: int, z: int, *rest: Any) -> None:
            arguments = rest[len(rest) - len(names) :]
            named = zip(names, arguments, strict=True)
            given = {name: value for name, value in named if name in run_time}
            self.recorder.launched(key, (int(x), int(y), int(z)), given)

        return launch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.target.capability, WARP_SIZE)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.target.capability, 10)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        return once

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1)

    def clear_cache(self, cache: torch.Tensor) -> None:
        return None


class DeviceUtilities:
    """The few questions that Triton, and sometimes a candidate, asks of the driver directly."""

    def __init__(self, target: Target, recorder: Recorder) -> None:
        self.target, self.recorder = target, recorder

    def get_device_properties(self, device: int) -> dict[str, int]:
        self.recorder.assumed("driver properties")
        return {
            "max_shared_mem": self.target.shared_per_block,
            "max_num_regs": REGISTERS,
            "multiprocessor_count": self.target.multiprocessors,
            "warpSize": WARP_SIZE,
        }

    def load_binary(
        self, name: str, cubin: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spills, threads a block may have."""
        registers = self.recorder.registers(cubin)
        return 1, 1, registers, 0, MAX_THREADS_PER_BLOCK

    def __getattr__(self, name: str) -> Any:
        raise Unsupported(f"the driver's {name} needs a device")


def once(call: Callable[[], Any], *arguments: Any, quantiles: Any = None, **options: Any) -> Any:
    """Triton's benchmarker without a clock: the call is made, so that it compiles, and costs 1."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0


class OnDevice(TorchFunctionMode):
    """Tensors say that they are on the device; what would put them there leaves them as they are.

    Torch operations between launches run on the host. With a recorder, where no kernel computes
    any values, dense products are recorded and give the right shape alone: they would take minutes.
    """

    def __init__(self, recorder: Recorder | None = None) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        getter = getattr(function, "__self__", None)
        if getter is torch.Tensor.is_cuda:
            return True
        if getter is torch.Tensor.is_cpu:
            return False
        if getter is torch.Tensor.device:
            return DEVICE
        if function is torch.Tensor.get_device:
            return DEVICE.index
        if function is torch.Tensor.cuda:
            return arguments[0]
        if function is torch.device:
            return function(*arguments, **(keywords or {}))  # a name, not a place
        arguments = tuple(_near(value) for value in arguments)
        keywords = {name: _near(value) for name, value in (keywords or {}).items()}
        keywords.pop("pin_memory", None)
        if self.recorder and function in HEAVY and "out" not in keywords:
            self.recorder.product(function.__name__)
            return _shapes_only(function, arguments, keywords)
        return function(*arguments, **keywords)


HEAVY = frozenset(
    {
        *(getattr(torch, name) for name in ("matmul", "mm", "bmm", "addmm", "baddbmm", "einsum")),
        *(getattr(torch.Tensor, name) for name in ("matmul", "mm", "bmm", "addmm", "baddbmm")),
        *(getattr(functional, name) for name in ("linear", "conv1d", "conv2d", "conv3d")),
        torch.Tensor.__matmul__,
        functional.scaled_dot_product_attention,
    }
)


def _shapes_only(function: Any, arguments: Any, keywords: Any) -> Any:
    """The result of one dense product, as torch would shape it, without the product."""

    def shape_of(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    named = {name: shape_of(value) for name, value in keywords.items()}
    result = function(*pytree.tree_map(shape_of, arguments), **named)
    return torch.zeros(0, dtype=result.dtype).new_empty(result.shape)


def _near(value: Any) -> Any:
    """A name of the device becomes the host's."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


class Stream:
    """Order needs no keeping where nothing runs."""

    cuda_stream = 0
    device = DEVICE

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        return None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **keywords: None


class Event(Stream):
    def elapsed_time(self, other: Event) -> float:
        return 1.0

    def query(self) -> bool:
        return True


class Graph(Stream):
    """A captured graph: its launches were seen when it was captured, replays repeat them."""


@contextlib.contextmanager
def _inert(*arguments: Any, **keywords: Any) -> Any:
    yield


def install(target: Target, recorder: Recorder) -> None:
    """Put the stand-ins into torch.cuda and triton.testing; the driver is set by the caller."""
    import triton.testing

    for name, value in _answers(target, recorder).items():
        setattr(torch.cuda, name, value)
    for name in ("synchronize", "set_device", "empty_cache", "init", "manual_seed", "set_stream"):
        setattr(torch.cuda, name, lambda *arguments, **keywords: None)
    for name, kind in {"Stream": Stream, "Event": Event, "CUDAGraph": Graph}.items():
        setattr(torch.cuda, name, kind)
    for name in ("stream", "device", "graph"):
        setattr(torch.cuda, name, _inert)
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(triton.testing, name, once)


def _answers(target: Target, recorder: Recorder) -> dict[str, Callable[..., Any]]:
    """What torch.cuda says of the device; answers that depend on the board are noted."""

    def of_the_board(question: str, value: Any) -> Callable[..., Any]:
        def asked(*arguments: Any, **keywords: Any) -> Any:
            recorder.assumed(question)
            return value

        return asked

    memory = (target.memory_bytes, target.memory_bytes)
    return {
        "get_device_properties": of_the_board("device properties", _properties(target)),
        "get_device_name": of_the_board("device name", target.board),
        "mem_get_info": of_the_board("free memory", memory),
        "get_device_capability": lambda *_, **__: divmod(target.capability, 10),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: DEVICE.index,
        "current_stream": Stream,
        "default_stream": Stream,
        "memory_allocated": lambda *_, **__: 0,
    }


def _properties(target: Target) -> types.SimpleNamespace:
    """As `torch.cuda.get_device_properties` gives them."""
    return types.SimpleNamespace(
        name=target.board,
        major=target.capability // 10,
        minor=target.capability % 10,
        multi_processor_count=target.multiprocessors,
        total_memory=target.memory_bytes,
        L2_cache_size=target.l2_bytes,
        warp_size=WARP_SIZE,
        regs_per_multiprocessor=REGISTERS,
        max_threads_per_multi_processor=target.warps_per_multiprocessor * WARP_SIZE,
        shared_memory_per_block=STATIC_SHARED,
        shared_memory_per_block_optin=target.shared_per_block,
        shared_memory_per_multiprocessor=target.shared_per_multiprocessor,
        gcnArchName="",
    )
