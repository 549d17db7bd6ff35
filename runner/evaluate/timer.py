"""Times one case that has passed its check: baseline and candidate in pairs, and who was there.

Owns the order of calls, fresh values, what is verified and what is measured again. It speaks
through the session and judges times by `pairs`.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from kernels.catalog import Case
from runner.evaluate import pairs as disputes
from runner.evaluate import processor, statistics
from runner.evaluate.buffers import Layout
from runner.evaluate.channel import Message
from runner.evaluate.keeper import Reply
from runner.evaluate.pairs import PairTimes, Side
from runner.processes import POLL_S
from runner.results import Timing, Verdict

if TYPE_CHECKING:
    from runner.evaluate.session import Session

WARM_UP_CALLS = 3  # on each set: until an allocator has settled, calls pay for page faults
MINIMUM_PAIRS = 10
VERIFIED_PAIRS = 8  # a median needs half of the calls: leaving them out escapes one time in 256
CLOCK_ATTEMPTS = 2
ALONE_ATTEMPTS = 3
ALONE_PAUSE_S = 5.0
WAIT_US = (200.0, 5000.0)  # before a call on a GPU: at least, at most
LAUNCH_MARGIN = 1.5


class Timer:
    """One case of a session, open on both sides in memory of `layout`."""

    def __init__(self, session: Session, case: Case, layout: Layout) -> None:
        self.session, self.case, self.layout = session, case, layout
        self.evidence = session.evidence
        session.wait_us = WAIT_US[0]

    def time(self, pairs: int) -> Timing:
        """Once more when the clocks disagree: a busy machine does that too, but not twice.

        Raises session.CaseFailed.
        """
        baseline = self._fastest_baseline()
        pairs = self._affordable(max(pairs, MINIMUM_PAIRS))
        for _ in range(CLOCK_ATTEMPTS):
            times = self._time_alone(baseline, pairs)
            disputed = self._disputed(times)
            if disputed is None:
                return self._timing(baseline, times)
        raise self.session.failed(Verdict.timing_disputed, self.case, str(disputed))

    def _timing(self, baseline: str, times: PairTimes) -> Timing:
        median_us = disputes.median(times.candidate.own_us)
        return statistics.timing(
            baseline,
            times.baseline.own_us,
            times.candidate.own_us,
            baseline_launch_us=times.baseline.launch_us or None,
            candidate_launch_us=times.candidate.launch_us or None,
            process_effect=statistics.effect_of_processes(self.session.kind, median_us),
        )

    def _disputed(self, times: PairTimes) -> str | None:
        """What speaks against these times; where nothing does, it is kept as evidence."""
        ratio = disputes.flush_ratio(times, self.session.flush_ns)
        disputed = (
            disputes.clock_dispute(times, self.session.kind)
            or disputes.idle_dispute(times)
            or disputes.slowed_dispute(ratio)
        )
        if disputed is None:
            self.evidence.clock_excess_us.append(disputes.clock_excess_us(times))
            if times.idle_us:
                self.evidence.idle_us.append(disputes.median(times.idle_us))
            if ratio is not None:
                self.evidence.flush_ratios.append(ratio)
        return disputed

    def _fastest_baseline(self) -> str:
        """Warm every baseline up and take the fastest: the strongest opponent, by name."""
        best: dict[str, float] = {}
        for name in self.session.baselines:
            for call in range(WARM_UP_CALLS * self.layout.sets):
                reply = self.session.run_baseline(name, call % self.layout.sets, dirty=True).message
                if reply.get("failed"):
                    self.evidence.refused_baselines[name] = str(reply["text"])
                    break
                self._wait_for_launch(reply)
                best[name] = min(best.get(name, math.inf), reply["ns"])
        if not best:
            raise RuntimeError(f"no baseline runs: {self.evidence.refused_baselines}")
        return min(best, key=best.__getitem__)

    def _affordable(self, pairs: int) -> int:
        """Warm the candidate up; fewer pairs where the deadline allows no more, at least ten."""
        watch = self.session.watch
        slowest, enough = 1e-6, watch.left() * 0.9
        for call in range(WARM_UP_CALLS * self.layout.sets):
            if watch.left() < enough:
                break
            number = call % self.layout.sets
            reply = self.session.run(self.case, number, "while warming up", dirty=True)
            self._wait_for_launch(reply.message)
            slowest = max(slowest, reply.elapsed_ns / 1e9)
        return max(MINIMUM_PAIRS, min(pairs, int(watch.left() / 2 / slowest)))

    def _wait_for_launch(self, reply: Message) -> None:
        """Keep a GPU busy, on both sides alike, for longer than any launch so far has taken."""
        launch_ns = reply.get("launch_ns")
        if isinstance(launch_ns, int):
            wait_us = max(self.session.wait_us, launch_ns / 1000 * LAUNCH_MARGIN)
            self.session.wait_us = min(WAIT_US[1], wait_us)

    def _time_alone(self, baseline: str, pairs: int) -> PairTimes:
        """What was measured while others used the GPU is discarded, and all of it repeated.

        On the host somebody is always at work; there it is evidence only.
        """
        session = self.session
        for attempt in range(ALONE_ATTEMPTS):
            session.neighbours.begin(session.own())
            times = self._time_pairs(baseline, pairs)
            seen = session.neighbours.end(session.own())
            if session.kind == "host" or seen.alone is not False:
                self.evidence.sightings.append(seen)
                return times
            self.evidence.repeated += 1
            session.progress(f"measuring {self.case.name} again: {seen.words}")
            self._pause(ALONE_PAUSE_S * attempt)
        self.evidence.sightings.append(seen)
        raise session.failed(Verdict.unmeasured, self.case, f"{seen.words}, each time")

    def _pause(self, seconds: float) -> None:
        """Wait at the expense of nobody's deadline. Raises Cancelled."""
        watch = self.session.watch
        watch.deadline += seconds
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            watch.check()
            time.sleep(min(POLL_S, seconds))

    def _time_pairs(self, baseline: str, pairs: int) -> PairTimes:
        """A pool of sets in turn, each with fresh values just before its pair.

        So nothing can be worked off in an earlier call, where a median would not see it. Which
        answers are judged, nobody knows before they are there.
        """
        session, random = self.session, self.session.random
        times = PairTimes()
        verified = set(random.sample(range(pairs), min(VERIFIED_PAIRS, pairs)))
        for pair in range(pairs):
            number = pair % self.layout.sets
            session.referee({"do": "renew", "set": number})
            self._pair(baseline, number, times)
            if pair in verified:
                session.judge(self.case, number, keep=False)
                self.evidence.timed_verified += 1
        for number in range(self.layout.sets):
            session.require_passed(self.case, session.referee({"do": "inputs", "set": number}))
        return times

    def _pair(self, baseline: str, number: int, times: PairTimes) -> None:
        """One call of each, in random order: a fixed order is biased.

        Both sides alike down to what the parent does before them: a walk through the candidate's
        processes between preparing and calling cost the candidate alone 2%.
        """
        sides = ["baseline", "candidate"]
        self.session.random.shuffle(sides)
        for side in sides:
            tree = self._candidate_tree()
            self.session.referee({"do": "prepare", "side": side, "set": number})
            spent = processor.times(tree)
            if side == "baseline":
                self._take(times.baseline, self.session.run_baseline(baseline, number))
                continue
            if times.rest is not None:
                times.idle_us.append(processor.spent_us(times.rest, spent))
            self._take(times.candidate, self.session.run(self.case, number, "while timing"))
            times.rest = processor.times(tree) if tree else None

    def _take(self, side: Side, reply: Reply) -> None:
        message = reply.message
        side.own_us.append(self._us(message, "ns"))
        side.outside_us.append(reply.elapsed_ns / 1000)
        if self.session.kind == "cuda":
            side.launch_us.append(self._us(message, "launch_ns"))
            side.flush_us.append(self._us(message, "flush_ns"))

    def _us(self, message: Message, name: str) -> float:
        value = message.get(name)
        if type(value) is not int or value <= 0:
            reason = f"it reported a time of {value!r}"
            raise self.session.failed(Verdict.tampered, self.case, reason, fatal=True)
        return value / 1000

    def _candidate_tree(self) -> list[int]:
        """Every process of the candidate, or none where the kernel does not list them."""
        return processor.tree(self.session.own()[-1]) if processor.available() else []
