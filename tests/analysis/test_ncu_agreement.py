"""Reading Nsight Compute's tables, and holding an analysis against them; no GPU is needed."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.catalog import load_problem
from tests.benchmarks import ncu_agreement
from tests.benchmarks.ncu_agreement import compared, printed, profiles

ROOT = Path(__file__).resolve().parents[2]
RAW = """\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "matmul_persistent" - 0: 0%....50%....100% - 3 passes
==PROF== Profiling "matmul_persistent" - 1: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","launch__block_size","launch__grid_size",\
"launch__occupancy_limit_blocks","launch__occupancy_limit_registers",\
"launch__occupancy_limit_shared_mem","launch__occupancy_limit_warps",\
"launch__registers_per_thread","launch__shared_mem_per_block_driver",\
"launch__shared_mem_per_block_dynamic","launch__shared_mem_per_block_static",\
"sass__inst_executed_local_loads","sass__inst_executed_register_spilling",\
"sm__maximum_warps_per_active_cycle_pct"
"","","","","","","","","","","","","","block","block","block","block","register/thread",\
"byte/block","byte/block","byte/block","inst","inst","%"
"0","4711","python3.12","127.0.0.1","matmul_persistent","1","7","(256, 1, 1)","(132, 1, 1)","0",\
"9.0","256","132","32","1","1","8","165","1,024","229,408","0","n/a","0","12.50"
"1","4711","python3.12","127.0.0.1","matmul_persistent","1","7","(256, 1, 1)","(132, 1, 1)","0",\
"9.0","256","132","32","1","1","8","165","1,024","229,408","0","n/a","0","12.50"
"""
OURS: dict[str, Any] = {
    "kernel": "matmul_persistent",
    "registers": 165,
    "static_shared_bytes": 0,
    "dynamic_shared_bytes": 229_408,
    "threads": 256,
    "occupancy": {
        "fraction": 0.125,
        "limits": {"registers": 1, "shared memory": 1, "warps": 8, "blocks": 32},
    },
    "spill_store_bytes": 0,
    "spill_load_bytes": 0,
    "local": [],
}


def disagreeing(kernel: dict[str, Any], text: str = RAW) -> list[str]:
    rows = compared("case", [kernel], profiles(text))
    return [row.quantity for row in rows if row.agrees is False]


def test_a_raw_table_is_read_between_the_words_of_the_profiler() -> None:
    first, second = profiles(RAW)
    assert first == second
    assert first.kernel == "matmul_persistent"
    assert first.metrics["launch__shared_mem_per_block_dynamic"] == 229_408
    assert first.metrics["sm__maximum_warps_per_active_cycle_pct"] == 12.5
    assert "sass__inst_executed_local_loads" not in first.metrics


def test_scaled_units_are_brought_to_bytes() -> None:
    scaled = RAW.replace('"byte/block","byte/block","byte/block"', '"Kbyte/block",' * 2 + '"byte"')
    (first, _) = profiles(scaled.replace('"1,024","229,408"', '"1.02","229.41"'))
    assert first.metrics["launch__shared_mem_per_block_dynamic"] == pytest.approx(229_410)


def test_a_table_without_the_names_of_kernels_is_refused() -> None:
    with pytest.raises(ValueError, match="no column 'Kernel Name'"):
        profiles(RAW.replace("Kernel Name", "Function"))


@pytest.mark.parametrize("text", ["", "==ERROR== The user does not have permission\n"])
def test_words_without_a_table_hold_no_profile(text: str) -> None:
    assert profiles(text) == ()


def test_an_analysis_that_says_the_same_agrees_in_everything_that_was_read() -> None:
    rows = compared("case", [OURS], profiles(RAW))
    assert {row.quantity for row in rows if row.agrees is None} == {"local memory"}
    assert all(row.agrees for row in rows if row.agrees is not None)
    assert "11 of 11 agree, 1 missing" in printed(rows)


@pytest.mark.parametrize(
    ("change", "quantity"),
    [
        ({"registers": 164}, "registers"),
        ({"dynamic_shared_bytes": 229_376}, "dynamic shared"),
        ({"threads": 384}, "threads"),
        ({"spill_store_bytes": 8}, "spills"),
    ],
)
def test_a_difference_is_named(change: dict[str, int], quantity: str) -> None:
    assert disagreeing({**OURS, **change}) == [quantity]


def test_occupancy_that_is_off_by_a_block_disagrees() -> None:
    kernel = copy.deepcopy(OURS)
    kernel["occupancy"]["fraction"] = 0.25
    assert disagreeing(kernel) == ["occupancy %"]


def test_a_kernel_that_did_not_run_is_missing_and_does_not_agree() -> None:
    rows = compared("case", [{**OURS, "kernel": "another"}], profiles(RAW))
    assert {row.agrees for row in rows} == {None}


def test_two_specialisations_of_a_name_are_compared_in_the_order_in_which_they_ran() -> None:
    *lines, last = RAW.splitlines()
    text = "\n".join([*lines, last.replace('"165"', '"52"')])
    rows = compared("case", [OURS, {**OURS, "registers": 52}], profiles(text))
    assert [row.ncu for row in rows if row.quantity == "registers"] == [165, 52]


def test_a_machine_without_the_profiler_is_told_so() -> None:
    argv = [sys.executable, "-m", ncu_agreement.__name__, "--ncu", "no-such-ncu"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Nsight Compute is not here (no-such-ncu)" in done.stderr


STUB = """\
#!{python}
import sys
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
assert "--launch" in sys.argv and arguments["--clock-control"] == "none"
assert arguments["--kernel-name"] == "regex:^(matmul_persistent)$"
known = "sass__" not in arguments["--metrics"]
open(arguments["--log-file"], "w").write({table!r} if known else "==ERROR== unknown metric\\n")
sys.exit(not known)
"""


def profiled_by(folder: Path, table: str) -> str:
    """What is read of a profiler that knows no counts of instructions and writes `table`."""
    ncu = folder / "ncu"
    ncu.write_text(STUB.format(python=sys.executable, table=table))
    ncu.chmod(0o700)
    (kernel,) = load_problem("matmul").kernels("triton")
    names = {"matmul_persistent"}
    return ncu_agreement.profiled(str(ncu), kernel, "matmul", "4096x4096x4096-bf16", names)


def test_counts_that_a_profiler_does_not_know_are_given_up(tmp_path: Path) -> None:
    assert profiled_by(tmp_path, RAW) == RAW


def test_a_profiler_without_permission_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ncu_agreement.Unusable, match="run as root") as refused:
        profiled_by(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - see the driver's page\n")
    assert "see the driver's page" in str(refused.value)
