from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from webapp.fleet.models import Device, Worker
from webapp.fleet.presence import Presence

pytestmark = pytest.mark.django_db


def test_a_device_worker_registers_itself_and_its_devices_by_its_queues() -> None:
    Presence("gpu@box", ["device.host", "device.cuda:0"]).register()

    assert list(Worker.objects.live().values_list("name", "kind")) == [("gpu@box", "device")]
    devices = Device.objects.live().values_list("name", "kind", "worker", "state")
    assert list(devices) == [
        ("cuda:0", "cuda", "gpu@box", "idle"),
        ("host", "host", "gpu@box", "idle"),
    ]


def test_an_agent_worker_says_which_agents_it_can_run_and_why_not_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    presence = Presence("agents@box", ["agents"])

    presence.register()
    worker = Worker.objects.get()
    assert "search" in worker.agents
    assert worker.lacking == {"claude": "ANTHROPIC_API_KEY is not set"}

    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of this test")
    presence.register()
    assert {"claude", "search"} <= Worker.objects.offer().agents
    assert Worker.objects.offer().lacking == {}


def test_a_device_worker_runs_no_agents() -> None:
    Presence("host@box", ["device.host"]).register()

    assert Worker.objects.get().agents == []
    assert not Worker.objects.offer().here


def test_an_agent_worker_serves_no_device() -> None:
    Presence("agents@box", ["agents"]).register()

    assert Worker.objects.driving().count() == 1
    assert not Device.objects.exists()


def test_who_stops_beating_is_not_live_and_who_beats_again_is() -> None:
    presence = Presence("host@box", ["device.host"])
    presence.register()
    Worker.objects.update(last_seen=timezone.now() - timedelta(minutes=1))
    Device.objects.update(last_seen=timezone.now() - timedelta(minutes=1))
    assert not Worker.objects.get().is_live
    assert not Device.objects.live().exists()

    presence.beat()

    assert Worker.objects.get().is_live
    assert Device.objects.get().is_live


def test_who_leaves_is_gone_at_once() -> None:
    presence = Presence("host@box", ["device.host"])
    presence.register()

    presence.leave()

    assert not Worker.objects.live().exists()
    assert not Device.objects.live().exists()


def test_a_device_that_moved_to_another_worker_is_not_taken_along_by_the_old_one() -> None:
    old, new = Presence("old@box", ["device.host"]), Presence("new@box", ["device.host"])
    old.register()
    new.register()

    old.leave()

    assert Device.objects.get().worker == "new@box"
    assert Device.objects.live().exists()


def test_what_was_measured_outlives_the_worker() -> None:
    presence = Presence("host@box", ["device.host"])
    presence.register()
    Device.objects.update(
        ceilings_text='[{"dtype":"fp32","unit":"FLOP/s","value":1e9,'
        '"name":"FMA","source":"measured","detail":"best of 5"}]'
    )

    presence.leave()
    presence.register()

    assert [ceiling.value for ceiling in Device.objects.get().ceilings] == [1e9]
