"""The host's roofs: bandwidth per memory level and FP32 peak, measured and modelled.

Owns the choice of footprints and the model. The measuring runs in a child process of this module
(`python -m runner.evaluate.host_ceilings SHARED_OBJECT`), which prints one JSON document.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from runner import languages, processes
from runner.evaluate.devices import cache_sizes, cpu_count, cpu_information
from runner.languages import MissingCompiler
from runner.results import Ceiling
from runner.sandbox import ROOT
from runner.spec import Limits

SOURCE = Path(__file__).with_name("microkernels.cpp")
DEADLINE_S = 120.0
DRAM_BYTES = 1 << 30
# Many short repetitions find a moment in which nothing else runs on any core; long ones do not.
REPETITIONS = 200
SHORT_BYTES = 16 << 20  # what a thread moves in a repetition at least: about a millisecond
FMA_ITERATIONS = 150_000  # about half a millisecond
DRAM_REPETITIONS = 4


def measure() -> tuple[Ceiling, ...]:
    """Compile the micro-kernels, run them in a child, add what the machine's data say."""
    try:
        measured = _measured()
    except (MissingCompiler, OSError, RuntimeError, ValueError, IndexError) as error:
        names = (("DRAM copy", "B/s", ""), ("FP32 FMA", "FLOP/s", "fp32"))
        reason = f"not measured: {error}"
        measured = [Ceiling(n, unit, None, "measured", reason, dtype) for n, unit, dtype in names]
    return (*measured, modelled_peak(), _unknown_memory())


def _measured() -> list[Ceiling]:
    with tempfile.TemporaryDirectory(prefix="warpdeck-ceilings-") as folder:
        language = languages.get("cpp")
        compiled = language.compile(SOURCE.read_text(), Path(folder), Limits())
        if not compiled.ok:
            raise RuntimeError(f"the micro-kernels do not compile: {compiled.reason}")
        argv = [sys.executable, "-P", "-m", "runner.evaluate.host_ceilings", str(compiled.artifact)]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": str(cpu_count()),
            "OMP_PROC_BIND": "true",
        }
        finished = processes.run(
            argv, deadline_s=DEADLINE_S, output_bytes=65536, environment=environment
        )
    if finished.status != 0:
        raise RuntimeError(f"the micro-kernels ended with {finished.status}: {finished.output}")
    # The last line alone is ours: the interpreter may warn about this module before it.
    return [Ceiling(**item) for item in json.loads(finished.output.splitlines()[-1])]


def footprints() -> list[tuple[str, int]]:
    """Name and bytes per thread (source and destination together) for each memory level.

    Half a private cache; for a shared one, well beyond all private caches but within half of it;
    for DRAM a GiB in all, twice the last level, at most a quarter of the free memory.
    """
    sizes, threads = cache_sizes(), cpu_count()
    levels = [(f"L{level} copy", sizes[level] // 2) for level in (1, 2) if level in sizes]
    if 3 in sizes:
        levels.append(
            ("L3 copy", min(sizes[3] // 2, 8 * threads * sizes.get(2, 1 << 20)) // threads)
        )
    wanted = max(DRAM_BYTES, 2 * max(sizes.values(), default=0))
    levels.append(("DRAM copy", min(wanted, _free_bytes() // 4) // threads))
    return levels


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 4 << 30


def modelled_peak() -> Ceiling:
    """Cores × clock × vector lanes × 2 FLOP × 2 pipes, with every assumption in the detail."""
    clock_hz, origin = _clock()
    if clock_hz is None:
        return Ceiling("FP32 peak", "FLOP/s", None, "modelled", origin, "fp32")
    lanes, instructions = _vector_lanes()
    value = cpu_count() * clock_hz * lanes * 2 * 2
    detail = (
        f"{cpu_count()} cores × {clock_hz / 1e9:.2f} GHz ({origin}) × {lanes} lanes"
        f" ({instructions}) × 2 FLOP × 2 pipes assumed; a boosted clock can exceed it"
    )
    return Ceiling("FP32 peak", "FLOP/s", float(value), "modelled", detail, "fp32")


def _clock() -> tuple[float | None, str]:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    try:
        return int(path.read_text()) * 1e3, "maximum by cpufreq"
    except (OSError, ValueError):
        pass
    megahertz = cpu_information("cpu MHz")
    if megahertz is None:
        return None, "neither cpufreq nor /proc/cpuinfo names a clock"
    return float(megahertz) * 1e6, "present by /proc/cpuinfo, the maximum is not reported"


def _vector_lanes() -> tuple[int, str]:
    flags = set((cpu_information("flags") or cpu_information("Features") or "").split())
    for flag, lanes in (("avx512f", 16), ("avx2", 8), ("avx", 8)):
        if flag in flags:
            return lanes, flag
    return 4, "asimd" if platform.machine() in ("aarch64", "arm64") else "sse"


def _unknown_memory() -> Ceiling:
    detail = "no datasheet value: the operating system names neither memory type nor channels"
    return Ceiling("DRAM", "B/s", None, "datasheet", detail)


def main(shared_object: str) -> None:
    """The child: run every micro-kernel and print the measured ceilings."""
    levels = footprints()  # before OpenMP binds this thread to one core
    library = ctypes.CDLL(shared_object)
    library.copy_seconds.restype = ctypes.c_double
    library.fma_seconds.restype = ctypes.c_double
    library.fma_flops.restype = ctypes.c_int64
    found = [_copy(library, name, nbytes) for name, nbytes in levels]
    print(json.dumps([*found, _fma(library)]))


def _copy(library: ctypes.CDLL, name: str, nbytes: int) -> dict[str, object]:
    threads, half = library.threads(), nbytes // 2 // 4096 * 4096
    passes, slices = max(1, SHORT_BYTES // (2 * half)), max(1, 2 * half // SHORT_BYTES)
    repetitions = DRAM_REPETITIONS if name.startswith("DRAM") else REPETITIONS // slices
    best, how = 0.0, ""
    for past_cache, words in ((0, "ordinary stores"), (1, "non-temporal stores")):
        if past_cache and not name.startswith("DRAM"):
            continue
        sizes = (ctypes.c_int64(half), ctypes.c_int64(slices), ctypes.c_int64(passes))
        seconds = library.copy_seconds(*sizes, repetitions, past_cache)
        rate = 2 * half / slices * passes * threads / seconds
        if rate > best:
            best, how = rate, words
    detail = (
        f"read + written bytes, {threads} threads of {2 * half / 2**10:.0f} KiB each, {how},"
        f" best of {repetitions * slices} stretches of about a millisecond"
    )
    return {"name": name, "unit": "B/s", "value": best, "source": "measured", "detail": detail}


def _fma(library: ctypes.CDLL) -> dict[str, object]:
    threads = library.threads()
    seconds = library.fma_seconds(ctypes.c_int64(FMA_ITERATIONS), REPETITIONS)
    value = FMA_ITERATIONS * library.fma_flops() * threads / seconds
    detail = (
        f"{threads} threads, register-only chains of fused multiply-adds,"
        f" best of {REPETITIONS} repetitions"
    )
    return {
        "name": "FP32 FMA",
        "unit": "FLOP/s",
        "value": value,
        "source": "measured",
        "detail": detail,
        "dtype": "fp32",
    }


if __name__ == "__main__":
    main(sys.argv[1])
