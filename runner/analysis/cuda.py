"""CUDA C++: its kernels compiled by nvcc for any target, in the shape of captured ones.

Nothing is launched: how many threads a block has is known only from __launch_bounds__, and dynamic
shared memory not at all. nvcc and the disassembler run in the sandbox.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from runner.analysis.captured import CompiledKernel
from runner.analysis.levels import ptx_lines
from runner.analysis.native import DoesNotCompile
from runner.analysis.targets import WARP_SIZE, Target
from runner.languages import MissingCompiler
from runner.languages.compilation import run_tool
from runner.spec import Limits

STEM = "candidate"
FLAGS = ("-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v", "-cubin", "--keep")
ASSUMED_THREADS = 256  # of a block without __launch_bounds__
LISTING_BYTES = 32 << 20
_ERROR = re.compile(r"candidate\.cu\((\d+)\): error: ([^\n]*)")
_ENTRY = re.compile(r"^\s*(?:\.visible )?\.entry (\w+)\(", re.MULTILINE)
_BOUNDS = re.compile(r"^\.(?:maxntid|reqntid) (\d+)(?:, (\d+))?(?:, (\d+))?", re.MULTILINE)
_SECTION = re.compile(r"^//-+ \.text\.(\S+)\s", re.MULTILINE)
_LOG = re.compile(r"^ptxas info\s+: Compiling entry function '(\w+)'", re.MULTILINE)
_MANGLED = re.compile(r"_Z(\d+)(\w+)")


@dataclass(frozen=True)
class Compiled:
    """The kernels of one file; `unbounded` names those whose block size is an assumption."""

    kernels: tuple[CompiledKernel, ...]
    unbounded: tuple[str, ...]


def compile_kernels(
    source: str,
    folder: Path,
    target: Target,
    limits: Limits,
    cancel: threading.Event | None = None,
) -> Compiled:
    """Raises DoesNotCompile, MissingCompiler, Cancelled."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise MissingCompiler("nvcc is not on this machine", "Install the CUDA toolkit.")
    (folder / f"{STEM}.cu").write_text(source, encoding="utf-8")
    suffix = "a" if target.capability >= 90 else ""
    argv = [nvcc, *FLAGS, f"-arch={target.name}{suffix}", f"{STEM}.cu", "-o", f"{STEM}.cubin"]
    finished = run_tool(argv, folder, limits, cancel)
    if finished.timed_out:
        raise DoesNotCompile(f"nvcc was stopped after {limits.compile_s:g} s", None)
    if finished.status != 0:
        found = _ERROR.search(finished.output)
        words = found[2] if found else finished.output[-2000:]
        raise DoesNotCompile(words, int(found[1]) if found else None)
    ptx = (folder / f"{STEM}.ptx").read_text(errors="replace")
    listing = _listing(folder, limits, cancel)
    return _kernels(ptx, listing, finished.output, (folder / f"{STEM}.cubin").read_bytes())


def _listing(folder: Path, limits: Limits, cancel: threading.Event | None) -> str:
    """nvdisasm comes with Triton, also where no CUDA toolkit is."""
    package = importlib.util.find_spec("triton")  # does not import it
    places = list(package.submodule_search_locations or []) if package else []
    tools = [Path(place, "backends", "nvidia", "bin", "nvdisasm") for place in places]
    tool = next((str(path) for path in tools if path.is_file()), shutil.which("nvdisasm"))
    if tool is None:
        raise MissingCompiler("nvdisasm is not on this machine", "Install Triton.")
    argv = [tool, "-g", "-gp", "-ndf", "-c", f"{STEM}.cubin"]
    finished = run_tool(argv, folder, limits, cancel, output_bytes=LISTING_BYTES)
    return finished.output if finished.status == 0 else ""


def _kernels(ptx: str, listing: str, log: str, cubin: bytes) -> Compiled:
    lines = ptx_lines(ptx)
    sections = _split(_SECTION, listing)
    logs = _split(_LOG, log)
    kernels, unbounded = [], []
    for found in _ENTRY.finditer(ptx):
        name = plain_name(found[1])
        bounds = _BOUNDS.search(ptx[found.end() : ptx.find("{", found.end())])
        threads = ASSUMED_THREADS
        if bounds:
            threads = int(bounds[1]) * int(bounds[2] or 1) * int(bounds[3] or 1)
        else:
            unbounded.append(name)
        first = ptx.count("\n", 0, found.end()) + 1
        kernels.append(
            CompiledKernel(
                key=found[1],
                name=name,
                line=next((lines[each] for each in sorted(lines) if each > first), None),
                num_warps=-(-threads // WARP_SIZE),
                num_ctas=1,
                num_stages=1,
                shared=0,
                ttir="",
                ttgir="",
                llir="",
                ptx=ptx,
                cubin=base64.b64encode(cubin).decode(),
                sass=sections.get(found[1], ""),
                ptxas=logs.get(found[1], ""),
            )
        )
    return Compiled(tuple(kernels), tuple(unbounded))


def _split(heading: re.Pattern[str], text: str) -> dict[str, str]:
    """What stands under each heading, by the name in it."""
    places = list(heading.finditer(text))
    ends = [place.start() for place in places[1:]] + [len(text)]
    return {place[1]: text[place.start() : end] for place, end in zip(places, ends, strict=True)}


def plain_name(symbol: str) -> str:
    """A function's name without its parameters, for one outside namespaces and templates."""
    found = _MANGLED.match(symbol)
    return found[2][: int(found[1])] if found else symbol
