"""Plain factories for rows and results. Rows come about as in real life: through events.

Every number here is made up for a test; nothing outside tests may import this module.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from runner.events import (
    BudgetPayload,
    CandidatePayload,
    EvaluationPayload,
    MessagePayload,
    RunPayload,
    RunStatus,
)
from runner.events import make_event as make_log_event
from runner.results import (
    CaseResult,
    DeviceInfo,
    Evaluation,
    IntegrityCheck,
    Outcome,
    Timing,
    Verdict,
)
from runner.spec import Budgets, RunSpec
from runner.wire import canonical, to_json
from webapp.runs import log, store
from webapp.runs.models import Candidate, Event, Run

HOST = DeviceInfo("host", "host", "Test CPU", "host-test", {"cores": "2"})
_numbers = itertools.count(1)


def make_user(username: str = "") -> User:
    return User.objects.create_user(username or f"person{next(_numbers)}")


def make_timing(speedup: float = 2.0, *, baseline_us: float = 1000.0) -> Timing:
    """A timing whose 95% interval is ±2% of the ratio."""
    median = baseline_us / speedup
    low, high = speedup * 0.98, speedup * 1.02
    outcome = Outcome.indistinguishable
    if low > 1:
        outcome = Outcome.faster
    elif high < 1:
        outcome = Outcome.slower
    return Timing(
        baseline="torch",
        median_us=median,
        p10_us=median * 0.95,
        p90_us=median * 1.1,
        baseline_us=baseline_us,
        baseline_p10_us=baseline_us * 0.95,
        baseline_p90_us=baseline_us * 1.1,
        speedup=speedup,
        ci95=(low, high),
        outcome=outcome,
        samples=30,
    )


def make_evaluation(
    verdict: str | Verdict = "passed",
    speedup: float | None = 2.0,
    *,
    reason: str = "",
    source: str = "",
    case: str = "4096x2048-fp32",
) -> Evaluation:
    """One scored and one unscored case; only a passing verdict carries a timing."""
    verdict = Verdict(verdict)
    passed = verdict is Verdict.passed
    timing = make_timing(speedup) if passed and speedup is not None else None
    elements = 4096 * 2048
    scored = CaseResult(
        case=case,
        verdict=verdict,
        reason="" if passed else (reason or f"the kernel got {verdict}"),
        max_rel_error=1e-6 if passed else None,
        norm_error=1e-7 if passed else None,
        flops=5 * elements,
        bytes_moved=8 * elements,
        timing=timing,
    )
    odd = CaseResult("odd-1023x777-fp32", Verdict.passed, scored=False, max_rel_error=1e-6)
    return Evaluation(
        verdict=verdict,
        reason=scored.reason,
        cases=(scored, odd),
        integrity=(IntegrityCheck("inputs_unchanged", True, "inputs equal their copies after"),),
        timer="perf_counter_ns around the call",
        device=HOST,
        versions={"python": "3.11.7", "torch": "2.13.0"},
        source_sha256=hashlib.sha256(source.encode()).hexdigest(),
        isolation="test",
    )


def make_run(
    status: str = "finished",
    *,
    candidates: int = 0,
    launched_by: User | None = None,
    reason: str = "",
    **spec: Any,
) -> Run:
    """A run with its log up to `status`, and so many passing candidates, each a little faster."""
    run_spec = RunSpec(**{"problem": "softmax", "budgets": Budgets(evaluations=24), **spec})
    run = Run.objects.create(
        spec_text=canonical(to_json(run_spec)),
        problem=run_spec.problem,
        device=run_spec.device,
        launched_by=launched_by,
        status=RunStatus.queued.value,
        reason=reason,
    )
    if status == "queued":
        return run
    make_event(run, RunPayload(RunStatus.running, "started", run_spec))
    for number in range(1, candidates + 1):
        make_candidate(run, speedup=1.0 + 0.1 * number, parent=number - 1 or None)
    if RunStatus(status).ended:
        make_event(run, RunPayload(RunStatus(status), reason or f"the run {status}"))
    return run


def make_event(run: Run, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> Event:
    """Append one event to the run's log as a driver would, lease aside; `run` is refreshed."""
    for content in (artifacts or {}).values():
        store.put(content)
    with transaction.atomic():
        run.last_seq += 1
        run.save(update_fields=["last_seq"])
        log.append(run, make_log_event(run.uuid, run.last_seq, log.now(), payload, artifacts))
    return Event.objects.get(run=run, seq=run.last_seq)


def make_candidate(
    run: Run,
    verdict: str | Verdict | None = "passed",
    speedup: float | None = 2.0,
    *,
    parent: int | None = None,
    source: str = "",
    idea: str = "A wider vector hides the latency of a load.",
    constants: dict[str, int] | None = None,
    evaluation: Evaluation | None = None,
) -> Candidate:
    """The events of one step, as the loop writes them; verdict None leaves it unevaluated."""
    number = run.candidates.count() + 1
    source = source or f'extern "C" void softmax_fp32() {{}} // candidate {number}\n'
    content = source.encode()
    make_event(run, MessagePayload(run.spec.agent, idea))
    payload = CandidatePayload(
        number=number,
        parent=parent,
        language=run.spec.language,
        idea=idea,
        author=run.spec.agent,
        source_sha256=hashlib.sha256(content).hexdigest(),
        kernel="softmax_rows",
        constants=constants or {},
    )
    make_event(run, payload, {f"c{number}.cpp": content})
    if verdict is not None:
        found = evaluation or make_evaluation(verdict, speedup, source=source)
        make_event(run, EvaluationPayload(number, found))
        make_event(run, BudgetPayload(run.evaluations, 2.0 * number, run.spec.budgets))
    return run.candidates.get(number=number)
