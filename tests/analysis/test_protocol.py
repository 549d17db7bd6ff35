"""The search for broken barrier protocols: the corpus, the search itself, what it leaves out."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path

import pytest

pytest.importorskip("triton.experimental.gluon")

from runner.analysis.findings import AnalysisVerdict, FindingKind, Severity
from runner.analysis.protocol import Limits, examine_protocol
from runner.analysis.protocol_events import Barrier, Buffer, Event, Kind, Process, Program, View
from runner.analysis.protocol_ir import read_module
from runner.analysis.protocol_search import Fault, Search
from runner.analysis.protocol_unroll import unroll
from runner.analysis.protocol_values import (
    Domain,
    World,
    evaluate,
    expression,
    leaf,
    num_programs,
    program_id,
)
from runner.analysis.protocol_walk import Budget, Undecided
from tests.analysis.protocol.compiling import FILES, FOLDER, ttgir

FAULTY = [path for path in FILES if path.parent.name == "faulty"]
CLEAN = [path for path in FILES if path.parent.name == "clean"]
PIPELINE = FOLDER / "clean" / "matmul_pipeline.py"
MODULE = """\
#shared = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-ctas" = CTAS : i32, "ttg.num-warps" = 4 : i32} {
  tt.func public @kernel(%n: i32 loc("k.py":1:0)) attributes {noinline = false} {
    %bar = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #shared, #smem, mutable> loc("k.py":2:4)
    ttng.init_barrier %bar, 1 : !ttg.memdesc<1xi64, #shared, #smem, mutable> loc("k.py":3:4)
    BODY
    tt.return loc("k.py":9:4)
  } loc("k.py":1:0)
} loc(unknown)
"""


def ids(path: Path) -> str:
    return path.stem


def programs(path: Path) -> list[Program]:
    """The kernel unrolled for every branch; loops run 6 times, 3 times where they nest, or 16."""
    module, found, open_worlds = read_module(ttgir(path)), [], [World()]
    while open_worlds:
        world = open_worlds.pop()
        try:
            found.append(unroll(module, world, Budget(10**6)))
        except Undecided as question:
            if question.purpose == "branch":
                ways = (0,) if question.trip >= 6 else (0, 1)
                open_worlds.extend(world.assuming(question.value, ways))
            else:
                nested = question.nests or world.rounds > 1
                wanted = world.fixing(question.value, (3 if nested else 6,))
                open_worlds.extend(wanted or world.fixing(question.value, (16,)))
    return found


def without(program: Program, process: int, line: int, kind: Kind) -> Program:
    """The same program with one of its lines left out."""
    processes = []
    for number, old in enumerate(program.processes):
        new = Process(old.name, old.warps)
        for event in old.events:
            if (event.process, event.line, event.kind) != (process, line, kind):
                new.add(dataclasses.replace(event), number)
        processes.append(new)
    return Program(processes, {})


# The corpus


@pytest.mark.parametrize("path", FAULTY, ids=ids)
def test_a_planted_fault_is_found_at_its_line(path: Path) -> None:
    kind, line = path.read_text().splitlines()[0].removeprefix("# ").split(" at line ")
    analysis = examine_protocol(ttgir(path))
    assert analysis.verdict is AnalysisVerdict.review
    [finding] = analysis.findings
    assert finding.source is not None
    assert (finding.kind, finding.source.line) == (kind, int(line)), finding.message
    assert finding.source.file == str(path)


@pytest.mark.parametrize("path", CLEAN, ids=ids)
def test_nothing_is_said_of_a_sound_kernel(path: Path) -> None:
    assert path.read_text().startswith("# clean\n")
    analysis = examine_protocol(ttgir(path))
    assert [finding.message for finding in analysis.findings] == []
    assert analysis.verdict is AnalysisVerdict.clean
    assert "interleavings" in analysis.scope[0]


@pytest.mark.parametrize("path", CLEAN, ids=ids)
def test_a_sound_kernel_is_no_longer_sound_with_one_synchronisation_left_out(path: Path) -> None:
    needed = {Kind.init, Kind.wait, Kind.expect, Kind.arrive, Kind.tma_load, Kind.store_wait}
    needed |= {Kind.fence, Kind.tc_commit, Kind.cp_wait, Kind.cp_arrive}
    program = max(programs(path), key=lambda found: len(found.events()))
    lines = {(e.process, e.line, e.kind) for e in program.events() if e.kind in needed}
    assert not Search(program, 100_000).run().violations
    for process, line, kind in sorted(lines):
        outcome = Search(without(program, process, line, kind), 100_000).run()
        assert outcome.violations, f"line {line} ({kind}) is missing, and nothing was said"


def test_a_length_in_sixteens_is_tried_with_its_smallest_multiples() -> None:
    analysis = examine_protocol(ttgir(FOLDER / "clean" / "trips_in_sixteens.py"))
    assert analysis.verdict is AnalysisVerdict.clean
    assert "steps = 16, 32, 48" in analysis.scope[0]


def test_the_counterexample_is_the_shortest_and_names_every_step() -> None:
    path = FOLDER / "faulty" / "empty_starts_with_the_wrong_parity.py"
    [finding] = examine_protocol(ttgir(path)).findings
    assert finding.evidence["steps"] == [
        "1. default, line 40: initialises full for 1, empty for 1",
        "2. default, line 35: starts the worker partitions",
        "3. default, line 28: waits for parity 0 of full[0], for ever",
        "4. partition0, line 14: waits for parity 0 of empty[0], for ever",
    ]


def test_an_ordinary_store_read_by_another_partition_is_an_error_and_by_the_same_a_warning() -> (
    None
):
    """Within one partition Triton 3.7.1 adds the fence, across partitions nobody does."""
    severities = {}
    for name in ("no_fence_before_the_hand_over", "result_stored_without_fence"):
        [finding] = examine_protocol(ttgir(FOLDER / "faulty" / f"{name}.py")).findings
        severities[name] = finding.severity
    assert severities == {
        "no_fence_before_the_hand_over": Severity.error,
        "result_stored_without_fence": Severity.warning,
    }


# What is not understood is never clean


def examined(body: str, ctas: int = 1, limits: Limits | None = None) -> tuple[AnalysisVerdict, str]:
    text = MODULE.replace("BODY", body).replace("CTAS", str(ctas))
    analysis = examine_protocol(text, limits=limits)
    return analysis.verdict, analysis.reason


def test_an_unknown_operation_leaves_the_analysis_incomplete_with_its_line() -> None:
    verdict, reason = examined('ttng.mystery %bar : i32 loc("k.py":5:4)')
    assert verdict is AnalysisVerdict.incomplete
    assert reason == "not understood: ttng.mystery (line 5)"


def test_inline_assembly_that_synchronises_is_not_skipped() -> None:
    body = (
        '%x = tt.elementwise_inline_asm "{asm}" {{constraints = "=r", packed_element = 1 : i32,'
        ' pure = false}} : i32 loc("k.py":5:4)'
    )
    assert examined(body.format(asm="bar.sync 1;"))[0] is AnalysisVerdict.incomplete
    assert examined(body.format(asm="mov.u32 $0, %laneid;"))[0] is AnalysisVerdict.clean


def test_clusters_are_not_claimed_to_be_searched() -> None:
    verdict, reason = examined("", ctas=2)
    assert verdict is AnalysisVerdict.incomplete
    assert "clusters" in reason


def test_text_that_is_no_module_leaves_the_analysis_incomplete() -> None:
    analysis = examine_protocol("ttng.init_barrier %0, 1 : i32\n}")
    assert analysis.verdict is AnalysisVerdict.incomplete


def test_a_search_that_hits_its_bound_is_not_clean() -> None:
    for path in (PIPELINE, FOLDER / "clean" / "single_load.py"):  # of many worlds, and of one
        analysis = examine_protocol(ttgir(path), limits=Limits(states=5))
        assert analysis.verdict is AnalysisVerdict.incomplete
        kinds = [finding.kind for finding in analysis.findings]
        assert kinds == [FindingKind.unsupported_operation]


def test_a_loop_that_was_never_entered_is_not_clean() -> None:
    """Only a size beyond all that are tried would enter it."""
    loop = """%zero = arith.constant 0 : i32 loc("k.py":4:4)
    %one = arith.constant 1 : i32 loc("k.py":4:4)
    %big = arith.constant 10000000 : i32 loc("k.py":4:4)
    %m = arith.divsi %n, %big : i32 loc("k.py":4:4)
    scf.for %i = %zero to %m step %one  : i32 {
      ttng.arrive_barrier %bar, 1 : !ttg.memdesc<1xi64, #shared, #smem, mutable> loc("k.py":6:4)
    } loc("k.py":5:4)"""
    verdict, reason = examined(loop)
    assert verdict is AnalysisVerdict.incomplete
    assert reason == "no values were found with which the loop of line 5 runs"


def test_branches_without_end_stop_at_a_bound() -> None:
    flag = "!ttg.memdesc<1xi64, #shared, #smem, mutable>"
    body = "\n".join(
        f"""%f{i} = arith.constant {i}.5 : f32 loc("k.py":4:4)
        %c{i} = arith.cmpf ogt, %f{i}, %f{i} : f32 -> i1 loc("k.py":5:4)
        ttng.arrive_barrier %bar, 1, %c{i} : {flag} loc("k.py":6:4)"""
        for i in range(40)
    )
    verdict, reason = examined(body, limits=Limits(operations=20_000))
    assert verdict is AnalysisVerdict.incomplete
    assert reason.startswith("not understood: more operations than this analysis walks")


def test_a_kernel_without_barriers_has_nothing_to_search() -> None:
    text = MODULE.replace("CTAS", "1").replace("BODY", "")
    text = "\n".join(line for line in text.splitlines() if "init_barrier" not in line)
    assert examine_protocol(text).scope == (
        "no barrier, partition or asynchronous operation: nothing to search",
    )


def test_a_slot_that_is_read_from_memory_is_taken_to_exist() -> None:
    """Any of the four may be meant; of a slot beyond them nothing is known."""
    ring = "!ttg.memdesc<4x1xi64, #shared, #smem, mutable>"
    one = "!ttg.memdesc<1xi64, #shared, #smem, mutable>"
    body = f"""%ring = ttg.local_alloc : () -> {ring} loc("k.py":4:4)
    %p = tt.int_to_ptr %n : i32 -> !tt.ptr<i32> loc("k.py":5:4)
    %s = tt.load %p : !tt.ptr<i32> loc("k.py":5:4)
    %slot = ttg.memdesc_index %ring[%s] : {ring} -> {one} loc("k.py":6:4)
    ttng.init_barrier %slot, 1 : {one} loc("k.py":6:4)"""
    text = MODULE.replace("CTAS", "1").replace("BODY", body)
    analysis = examine_protocol(text)
    assert analysis.verdict is AnalysisVerdict.clean
    assert "in 4 configurations" in analysis.scope[0]


def test_a_branch_on_a_parameter_is_followed_both_ways() -> None:
    wait = "ttng.wait_barrier %bar, %zero : !ttg.memdesc<1xi64, #shared, #smem, mutable>"
    body = f"""%zero = arith.constant 0 : i32 loc("k.py":4:4)
    %many = arith.constant 100 : i32 loc("k.py":4:4)
    %c = arith.cmpi sgt, %n, %many : i32 loc("k.py":5:4)
    scf.if %c {{
      {wait} loc("k.py":6:4)
    }} loc("k.py":5:4)"""
    text = MODULE.replace("CTAS", "1").replace("BODY", body)
    [finding] = examine_protocol(text).findings
    assert finding.kind is FindingKind.deadlock
    assert finding.source is not None
    assert finding.source.line == 6


# The search


TILES = [View(Buffer(i, f"tile{i}", None, 1), 0, 64, (1,), 64) for i in range(2)]
BARRIERS = [Barrier(Buffer(9 + i, f"bar{i}", None, 1), 0) for i in range(2)]


def random_events(draw: random.Random) -> list[Event]:
    """One or two steps of a partition, of any kind."""
    tile, barrier = draw.choice(TILES), draw.choice(BARRIERS)
    few, flag = draw.randint(0, 1), bool(draw.randint(0, 1))
    copy = Event(Kind.tma_load, None, barrier, writes=(tile,), amount=8)
    return draw.choice(
        [
            [Event(Kind.wait, None, barrier, parity=few)],
            [Event(Kind.arrive, None, barrier, amount=1 + few)],
            [Event(Kind.expect, None, barrier, amount=8), copy],
            [copy],
            [Event(Kind.read, None, reads=(tile,))],
            [Event(Kind.write, None, writes=(tile,))],
            [Event(Kind.mma, None, reads=(tile,))],
            [Event(Kind.mma_wait, None, amount=few)],
            [Event(Kind.tma_store, None, reads=(tile,))],
            [Event(Kind.store_wait, None, amount=few)],
            [Event(Kind.fence, None)],
            [Event(Kind.cp_async, None, writes=(tile,)), Event(Kind.cp_commit, None)],
            [Event(Kind.cp_wait, None, amount=few)],
            [Event(Kind.cp_arrive, None, barrier, amount=1, counted=flag)],
            [Event(Kind.tc_mma, None, reads=(tile,), writes=(draw.choice(TILES),))],
            [Event(Kind.tc_commit, None, barrier)],
        ]
    )


def random_program(seed: int) -> Program:
    """One to three partitions of a few steps each; most of them are wrong somehow."""
    draw = random.Random(seed)
    count = draw.choice([1, 2, 2, 3])
    processes = [Process(f"p{i}") for i in range(count)]
    for barrier in BARRIERS:
        processes[0].add(Event(Kind.init, None, barrier, amount=draw.choice([1, 1, 2])), 0)
    for tile in TILES if draw.random() < 0.8 else ():
        processes[0].add(Event(Kind.write, None, writes=(tile,)), 0)
    children = tuple(range(1, count))
    processes[0].add(Event(Kind.fork, None, children=children), 0)
    for number, process in enumerate(processes):
        for _ in range(draw.randint(2, 6)):
            for event in random_events(draw):
                process.add(dataclasses.replace(event), number)
    processes[0].add(Event(Kind.rejoin, None, children=children), 0)
    return Program(processes, {})


def test_the_reductions_lose_no_violation() -> None:
    fatal: list[Fault] = []
    for seed in range(2000):
        program = random_program(seed)
        reduced = Search(program, 100_000).run()
        every = Search(program, 100_000, reduced=False).run()
        assert not every.truncated
        assert bool(reduced.violations) == bool(every.violations), f"seed {seed}"
        fatal += [violation.fault for violation in reduced.violations]
    assert {Fault.stuck, Fault.conflict, Fault.over_arrival, Fault.busy_at_end} <= set(fatal)
    assert {Fault.unwritten, Fault.no_fence} <= set(fatal)


def test_a_phase_ends_only_when_arrivals_and_bytes_are_complete() -> None:
    tile, bar = TILES[0], BARRIERS[0]
    steps = [
        Event(Kind.init, None, bar, amount=1),
        Event(Kind.tma_load, None, bar, writes=(tile,), amount=8),
        Event(Kind.expect, None, bar, amount=8),  # after the copy: the bytes may come first
        Event(Kind.wait, None, bar, parity=0),
        Event(Kind.read, None, reads=(tile,)),
    ]
    assert not Search(alone(steps), 1000).run().violations
    [violation] = Search(alone([*steps[:3], steps[4]]), 1000).run().violations
    assert (violation.fault, violation.event.kind) == (Fault.conflict, Kind.read)


def alone(steps: list[Event]) -> Program:
    process = Process("default")
    for event in steps:
        process.add(dataclasses.replace(event), 0)
    return Program([process], {})


def test_a_tile_is_told_apart_from_its_neighbour_and_from_its_other_half() -> None:
    ring = Buffer(1, "ring", None, 2)
    first = View(ring, 0, 512, (8, 8), 8)
    second = dataclasses.replace(first, low=512, high=1024)
    left = dataclasses.replace(first, box=((0, 8), (0, 4)))
    right = dataclasses.replace(first, box=((0, 8), (4, 8)))
    assert not first.overlaps(second)
    assert not left.overlaps(right)
    assert left.overlaps(first)
    assert right.overlaps(dataclasses.replace(first, box=((2, 3), (3, 5))))


# Values


def test_integer_division_rounds_towards_zero_and_wraps_as_the_hardware_does() -> None:
    assert expression("arith.divsi", (-7, 2), 32) == -3
    assert expression("arith.remsi", (-7, 2), 32) == -1
    assert expression("arith.addi", (2**31 - 1, 1), 32) == -(2**31)
    assert expression("arith.divui", (-1, 2), 32) == 2**31 - 1
    assert expression("trips", (1, 8, 3), 64) == 3
    assert expression("arith.shli", (1, 1 << 30), 32) == 0
    assert expression("arith.shrsi", (-8, 1), 32) == -4


def test_one_choice_of_a_parameter_answers_every_expression_of_it() -> None:
    size = leaf(("K",), "K", Domain.positive, 16)
    trips = expression("arith.divsi", (expression("arith.addi", (size, 63), 32), 64), 32)
    large = expression("arith.cmpi sgt", (size, 128), 1)
    assert not isinstance(trips, int)
    assert not isinstance(large, int)
    assert [world.labels["K"] for world in World().fixing(trips, (1, 2, 3))] == [64, 128, 192]
    [small, big] = World().assuming(large, (0, 1))
    assert [world.labels["K"] for world in small.fixing(trips, (1, 2, 3))] == [64, 128]
    assert [world.labels["K"] for world in big.fixing(trips, (1, 2, 3))] == [192]
    assert all(evaluate(large, world.witness) == 1 for world in big.fixing(trips, (3,)))


def test_no_program_has_a_number_beyond_the_number_of_programs() -> None:
    first, step = program_id("x"), num_programs("x")
    tiles = leaf(("tiles",), "tiles", Domain.positive)
    trips = expression("trips", (first, tiles, step), 64)
    assert not isinstance(trips, int)
    worlds = World().fixing(trips, range(5))
    assert [evaluate(trips, world.witness) for world in worlds] == [0, 1, 2, 3, 4]
    for world in worlds:
        assert world.labels["program_id(x)"] < world.labels["num_programs(x)"]


# The text of the IR


def test_a_location_is_the_innermost_line_that_is_not_of_the_library() -> None:
    module = read_module(ttgir(PIPELINE))
    lines = PIPELINE.read_text().splitlines()
    divisions = [op for op in module.kernel.body.ops() if op.name == "arith.divsi"]
    trips = {module.source(op.loc) for op in divisions if len(module.frames(op.loc)) > 2}
    assert trips, "cdiv is inlined from triton's own file"
    for source in trips:
        assert source is not None
        assert source.file == str(PIPELINE)
        assert lines[source.line - 1] == "    for step in range(gl.cdiv(k_size, 64)):"
    [full] = [op for op in module.kernel.body.ops() if module.label(op.loc) == "full"]
    assert full.name == "ttg.local_alloc"


def test_a_library_is_known_by_its_path_even_when_that_is_cut() -> None:
    cut = re.sub(r'"[^"]*/site-packages/', '"', ttgir(PIPELINE))
    module = read_module(cut)
    sources = [module.source(op.loc) for op in module.kernel.body.ops()]
    assert {source.file for source in sources if source} == {str(PIPELINE)}


def test_regions_and_results_are_read_as_they_are_printed() -> None:
    module = read_module(ttgir(FOLDER / "clean" / "running_slot_and_phase.py"))
    ops = list(module.kernel.body.ops())
    [specialize] = [op for op in ops if op.name == "ttg.warp_specialize"]
    assert [region.label for region in specialize.regions] == ["default", "partition0"]
    assert specialize.regions[1].warps == 1
    loops = [op for op in ops if op.name == "scf.for"]
    assert [len(loop.results) for loop in loops] == [3, 2]  # total, slot, phase; slot, phase
