"""The fleet page: which devices and workers are there, and what they are doing."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from webapp.fleet.models import Device, Worker
from webapp.runs.models import Job


@dataclass(frozen=True)
class DeviceLoad:
    """A device with its open jobs: the one under way, and how many wait behind it."""

    device: Device
    current: Job | None
    waiting: int


@require_GET
def fleet(request: HttpRequest) -> HttpResponse:
    context = {
        "nav": "fleet",
        "loads": device_loads(),
        "workers": Worker.objects.all(),
        "agents_live": Worker.objects.driving().exists(),
    }
    partial = request.headers.get("HX-Target") == "fleet-now"
    return render(request, "fleet/_now.html" if partial else "fleet/fleet.html", context)


def device_loads() -> list[DeviceLoad]:
    """Every known device, in two queries however many there are."""
    jobs = list(Job.objects.open().select_related("run").order_by("pk"))
    return [_load(device, jobs) for device in Device.objects.all()]


def _load(device: Device, jobs: list[Job]) -> DeviceLoad:
    mine = [job for job in jobs if job.device == device.name]
    now = timezone.now()
    current = next((job for job in mine if job.lease_until and job.lease_until >= now), None)
    return DeviceLoad(device, current, len(mine) - (current is not None))
