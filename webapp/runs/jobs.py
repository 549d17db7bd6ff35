"""The device side: claims a job, has it evaluated, and stores what was found under its claim.

Nothing here judges a kernel; that is runner.evaluate. A worker that dies leaves a lapsed claim
that another worker takes up, so the number of attempts is bounded here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from typing import Any, Protocol

from django.db.models import F
from django.utils import timezone

from runner.evaluate import Cancelled, evaluate
from runner.results import DeviceInfo, Evaluation, Verdict
from runner.spec import EvaluationSpec, SpecError, device_kind
from runner.wire import canonical, to_json
from webapp.fleet.models import Device
from webapp.runs.leases import Keeper, Lease
from webapp.runs.models import Job

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3


class Evaluate(Protocol):
    def __call__(
        self, spec: EvaluationSpec, *, cancel: threading.Event | None, progress: Any
    ) -> Evaluation: ...


def evaluate_job(
    pk: int, shutdown: threading.Event, worker: str, *, evaluate: Evaluate = evaluate
) -> None:
    """Evaluate a job if it is to be had. The result is stored only while the claim is ours."""
    token = None if shutdown.is_set() else Job.objects.claim(pk, worker)
    if token is None:
        return
    job = Job.objects.get(pk=pk)
    lease = Lease(Job.objects.all(), pk, token)
    if job.attempts > MAX_ATTEMPTS:
        reason = f"the device worker died in each of {MAX_ATTEMPTS} attempts at this evaluation"
        _finish(lease, harness_error(job, reason))
        return
    Device.objects.filter(name=job.device).update(state=Device.State.EVALUATING)
    try:
        _evaluate(job, lease, shutdown, evaluate)
    finally:
        Device.objects.filter(name=job.device).update(state=Device.State.IDLE)


def _evaluate(job: Job, lease: Lease, shutdown: threading.Event, evaluate: Evaluate) -> None:
    cancel = threading.Event()

    def watch() -> None:
        if shutdown.is_set() or Job.objects.filter(pk=job.pk, cancelled=True).exists():
            cancel.set()

    def progress(phase: str) -> None:
        lease.update(phase=phase[:120])

    with Keeper(lease, lost=cancel, tick=watch):
        try:
            _finish(lease, evaluate(job.spec, cancel=cancel, progress=progress))
        except Cancelled:
            _let_go(job, lease)
        except SpecError as error:
            refusal = {"field": error.field, "problem": error.problem, "remedy": error.remedy}
            lease.update(refusal_text=canonical(refusal), finished_at=timezone.now())
        except Exception as error:
            logger.exception("job %s", job.pk)
            _finish(lease, harness_error(job, f"{type(error).__name__}: {error}"))


def _finish(lease: Lease, evaluation: Evaluation) -> None:
    text = canonical(to_json(evaluation))
    if not lease.update(result_text=text, finished_at=timezone.now(), lease_until=None, phase=""):
        logger.warning("a result came too late: the job was claimed by another worker")


def _let_go(job: Job, lease: Lease) -> None:
    """After a cancelled evaluation: the job is over if a person stopped it, else it waits again."""
    if Job.objects.filter(pk=job.pk, cancelled=True).exists():
        lease.update(finished_at=timezone.now(), lease_until=None, phase="")
    else:
        attempts = F("attempts") - 1  # nobody died
        lease.update(lease_until=None, phase="", attempts=attempts, enqueued_at=None)


def harness_error(job: Job, reason: str) -> Evaluation:
    """The result of an evaluation that our own side could not carry out."""
    row = Device.objects.filter(name=job.device).first()
    unknown = DeviceInfo(job.device, device_kind(job.device), "", "", {})
    source = json.loads(job.spec_text)["source"]
    return Evaluation(
        verdict=Verdict.harness_error,
        reason=reason,
        cases=(),
        integrity=(),
        timer="",
        device=(row.info if row else None) or unknown,
        versions={},
        source_sha256=hashlib.sha256(source.encode()).hexdigest(),
        isolation="",
    )
