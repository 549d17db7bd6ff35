"""The analysis child: runs one candidate against the stand-in device and writes down what it saw.

Runs inside the sandbox, in a fork of its own. It judges nothing: launches, compiled kernels and
troubles go to the parent as they are.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import hashlib
import io
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import make_backend
from triton.runtime.autotuner import Autotuner

from runner.analysis import standin
from runner.analysis.captured import (
    Autotuned,
    Captured,
    CompiledKernel,
    Launch,
    Trouble,
    TroubleKind,
)
from runner.analysis.targets import TARGETS, Target
from runner.analysis.troubles import MESSAGE_CHARACTERS, trouble_of
from runner.evaluate.channel import Channel
from runner.evaluate.modules import module_at
from runner.evaluate.tensors import DTYPES, warm_torch
from runner.wire import canonical, to_json

ZEROED_BYTES = 1 << 20  # larger tensors come from fresh pages, which are zero until written
DISASSEMBLE_S = 60.0
MAX_KERNELS = 32
TEXT_CHARACTERS = 8 << 20  # of one level; the largest of the zoo has 140,000
DISASSEMBLE = ("-g", "-gp", "-ndf", "-c")  # source lines, PTX lines, no dataflow (half the time)


def warm() -> None:
    """What the zygote does once for all candidates: imports, tool versions, Triton's own hash."""
    import triton.experimental.gluon.language.nvidia.hopper
    import triton.tools.tensor_descriptor
    from triton.runtime.cache import triton_key

    warm_torch()
    triton_key()
    for target in TARGETS.values():
        backend = make_backend(triton.backends.compiler.GPUTarget("cuda", target.capability, 32))
        backend.hash()
    _ = knobs.nvidia.ptxas, knobs.nvidia.nvdisasm


def serve(channel: Channel) -> None:
    """Answer one question, with the report in the memory that came with it."""
    message = channel.receive()
    if message is None:
        return
    (descriptor,) = channel.take_descriptors()
    found = capture(message["artifact"], TARGETS[message["target"]], message["inputs"])
    with os.fdopen(descriptor, "wb") as report:
        report.write(canonical(to_json(found)).encode("utf-8", errors="replace"))
    channel.send({"nonce": message["nonce"]})


def capture(artifact: str, target: Target, inputs: list[Any]) -> Captured:
    """Load the candidate, run it once on inputs of these shapes and dtypes, collect what compiled.

    `inputs` are pairs of shape and dtype name. Raises nothing for what the candidate does.
    """
    record = Record(artifact)
    standin.install(target, record)
    triton.runtime.driver.set_active(standin.Driver(target, record))
    knobs.compilation.listener = record.compiled
    knobs.nvidia.dump_ptxas_log = True
    CUDABackend.make_cubin = record.keeping_log(CUDABackend.make_cubin)
    Autotuner._bench = record.first_that_fits(Autotuner._bench)
    threading.excepthook = record.thread_failed
    with standin.OnDevice(record):
        trouble = _run(record, [_tensor(*each) for each in inputs])
    return record.finished(trouble)


def _tensor(shape: list[int], dtype: str) -> torch.Tensor:
    """Zeros, without touching the pages of a large one."""
    tensor = torch.empty(shape, dtype=DTYPES[dtype])
    return tensor.zero_() if tensor.nbytes <= ZEROED_BYTES else tensor


def _run(record: Record, inputs: list[torch.Tensor]) -> Trouble | None:
    stage = TroubleKind.load
    try:
        module = module_at(record.artifact)
        stage = TroubleKind.run
        module.run(*inputs)
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: all are its own doing
        return trouble_of(error, stage, record.artifact, record.refused_ptx)
    return None


class Record:
    """Everything seen so far. One candidate, one child: it is written once and read once."""

    def __init__(self, artifact: str) -> None:
        self.artifact = artifact
        self.thread = threading.get_ident()
        self.threads_before = threading.active_count()
        self.sources: dict[str, dict[str, Any]] = {}  # by the kernel's hash
        self.logs: dict[str, str] = {}  # ptxas' words by the hash of the cubin
        self.launches: list[Launch] = []
        self.tuned: dict[int, Autotuned] = {}
        self.fitting: dict[int, Any] = {}
        self.questions: dict[str, None] = {}
        self.products: dict[str, None] = {}
        self.thread_errors: list[str] = []
        self.refused_ptx = ""  # what ptxas was given when it failed

    def launched(self, key: str, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        scalars = {name: value for name, value in arguments.items() if type(value) is int}
        in_thread = threading.get_ident() != self.thread
        self.launches.append(Launch(key, grid, self._line(), in_thread, scalars))

    def assumed(self, question: str) -> None:
        """Triton asks for the shared memory of every kernel; only a candidate's question counts."""
        if self._line(depth=4) is not None:
            self.questions[question] = None

    def product(self, name: str) -> None:
        self.products[name] = None

    def registers(self, cubin: bytes) -> int:
        log = self.logs.get(hashlib.sha256(cubin).hexdigest(), "")
        words = log.split()
        return int(words[words.index("registers,") - 1]) if "registers," in words else 0

    def _line(self, depth: int | None = None) -> int | None:
        """The innermost line of the candidate's file on the stack, at most `depth` frames up."""
        frame = sys._getframe(1)
        steps = 0
        while frame is not None and (depth is None or steps < depth):
            if frame.f_code.co_filename == self.artifact:
                return frame.f_lineno
            frame, steps = frame.f_back, steps + 1  # type: ignore[assignment]
        return None

    def compiled(
        self, *, src: Any, metadata: dict[str, Any], metadata_group: Any, **_: Any
    ) -> None:
        """Triton's compilation listener."""
        self.sources[metadata["hash"]] = {
            "name": metadata["name"],
            "line": self._definition(src.fn),
            "metadata": metadata,
            "files": {Path(path).suffix[1:]: path for path in metadata_group.values()},
        }

    def _definition(self, function: Any) -> int | None:
        code = getattr(getattr(function, "fn", None), "__code__", None)
        if code is None or code.co_filename != self.artifact:
            return None
        lines = Path(self.artifact).read_text().splitlines()
        first = int(code.co_firstlineno)  # of its decorators
        names = range(first, len(lines) + 1)
        return next((each for each in names if lines[each - 1].lstrip().startswith("def ")), first)

    def keeping_log(self, make_cubin: Any) -> Any:
        """Triton prints what ptxas says of registers and spills, and forgets it."""

        def wrapped(backend: Any, *arguments: Any, **keywords: Any) -> bytes:
            words = io.StringIO()
            self.refused_ptx = str(arguments[0])
            with contextlib.redirect_stdout(words):
                cubin: bytes = make_cubin(backend, *arguments, **keywords)
            self.refused_ptx = ""
            self.logs[hashlib.sha256(cubin).hexdigest()] = words.getvalue()
            return cubin

        return wrapped

    def first_that_fits(self, bench: Any) -> Any:
        """Autotuning without a clock: the first configuration that compiles and fits is taken."""

        def wrapped(tuner: Any, *arguments: Any, config: Any, **keywords: Any) -> Any:
            if self.fitting.get(id(tuner)) is tuner.nargs:
                return [float("inf")] * 3
            tuner.do_bench = standin.once
            times = bench(tuner, *arguments, config=config, **keywords)
            before = self.tuned.get(id(tuner))
            fits = times[0] != float("inf")
            if fits:
                self.fitting[id(tuner)] = tuner.nargs
            name = tuner.base_fn.__name__
            tried = 0 if before is None or before.chosen else before.tried
            chosen = str(config) if fits else ""
            count = len(tuner.configs)
            self.tuned[id(tuner)] = Autotuned(name, count, tried + (not fits), chosen)
            return times

        return wrapped

    def thread_failed(self, hook: Any) -> None:
        words = f"{hook.exc_type.__name__}: {hook.exc_value}"
        self.thread_errors.append(words[:MESSAGE_CHARACTERS])
        traceback.print_exception(hook.exc_value)

    def finished(self, trouble: Trouble | None) -> Captured:
        left = max(0, threading.active_count() - self.threads_before)
        keys = list(self.sources)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            kernels = tuple(pool.map(self._kernel, keys[:MAX_KERNELS]))
        return Captured(
            kernels=kernels,
            launches=tuple(self.launches),
            autotuned=tuple(self.tuned.values()),
            assumed=tuple(self.questions),
            products=tuple(self.products),
            kernels_left=max(0, len(keys) - MAX_KERNELS),
            threads_left=left,
            thread_errors=tuple(self.thread_errors),
            trouble=trouble,
        )

    def _kernel(self, key: str) -> CompiledKernel:
        source = self.sources[key]
        metadata, files = source["metadata"], source["files"]
        cubin = Path(files["cubin"]).read_bytes()
        texts = {
            name: _capped(Path(files[name]).read_text()) if name in files else ""
            for name in ("ttir", "ttgir", "llir", "ptx")
        }
        return CompiledKernel(
            key=key,
            name=source["name"],
            line=source["line"],
            num_warps=metadata["num_warps"],
            num_ctas=metadata["num_ctas"],
            num_stages=metadata["num_stages"],
            shared=metadata["shared"],
            cubin=base64.b64encode(cubin).decode(),
            sass=disassemble(files["cubin"]),
            ptxas=self.logs.get(hashlib.sha256(cubin).hexdigest(), ""),
            **texts,
        )


def disassemble(cubin: str) -> str:
    """SASS with the source line and the PTX line of each instruction; empty when nvdisasm fails."""
    argv = [knobs.nvidia.nvdisasm.path, *DISASSEMBLE, cubin]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DISASSEMBLE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return _capped(done.stdout) if done.returncode == 0 else ""


def _capped(text: str) -> str:
    """A text that is too large to be read is left out whole: half a listing would mislead."""
    return text if len(text) <= TEXT_CHARACTERS else ""
