"""Roofs: measured once a machine, kept, and honest about what could not be obtained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.evaluate import cuda_ceilings
from runner.evaluate.ceilings import ceilings
from runner.evaluate.devices import available_devices, cache_sizes, device_info
from runner.results import Ceiling
from runner.spec import SpecError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPDECK_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def roofs(cache: Path) -> tuple[Ceiling, ...]:
    return ceilings("host")


def test_the_host_has_a_measured_roof_per_memory_level_and_a_peak(
    roofs: tuple[Ceiling, ...],
) -> None:
    measured = {roof.name: roof for roof in roofs if roof.source == "measured"}
    levels = [f"L{level} copy" for level in sorted(cache_sizes()) if level < 4]
    assert list(measured) == [*levels, "DRAM copy", "FP32 FMA"]
    assert all(roof.value is not None and roof.value > 1e9 for roof in measured.values())
    assert measured["FP32 FMA"].unit == "FLOP/s"


def test_what_nobody_knows_is_null_with_its_reason(roofs: tuple[Ceiling, ...]) -> None:
    unknown = [roof for roof in roofs if roof.value is None]
    assert all(roof.detail for roof in unknown)
    assert "DRAM" in [roof.name for roof in unknown]
    assert any(roof.source == "modelled" for roof in roofs)


def test_the_second_call_reads_what_the_first_one_measured(
    roofs: tuple[Ceiling, ...], cache: Path
) -> None:
    (file,) = cache.iterdir()
    file.write_text(file.read_text().replace("FP32 FMA", "FP32 from the cache"))
    assert "FP32 from the cache" in [roof.name for roof in ceilings("host")]


def test_a_broken_cache_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPDECK_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler: quick, and null with a reason
    (tmp_path / "ceilings-1-x.json").write_text("{")
    found = {roof.name: roof for roof in ceilings("host")}
    assert found["DRAM copy"].value is None
    assert "g++" in found["DRAM copy"].detail


def test_a_failed_measurement_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPDECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    ceilings("host")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("model", "bandwidth"), [("NVIDIA H200", 4.8e12), ("NVIDIA H100 80GB HBM3", 3.35e12)]
)
def test_a_known_board_has_its_datasheet_roofs(model: str, bandwidth: float) -> None:
    found = {roof.name: roof.value for roof in cuda_ceilings.datasheet(model)}
    assert found["HBM"] == bandwidth
    assert found["BF16 tensor"] == 989e12


@pytest.mark.parametrize("model", ["NVIDIA H100 PCIe", "NVIDIA GeForce RTX 4090"])
def test_an_unknown_board_has_no_datasheet_figure_but_a_reason(model: str) -> None:
    (roof,) = cuda_ceilings.datasheet(model)
    assert roof.value is None
    assert model in roof.detail


def test_the_host_is_always_a_device() -> None:
    assert available_devices()[0] == "host"
    info = device_info("host")
    assert info.kind == "host"
    assert info.uuid.startswith("host-")
    assert info.uuid == device_info("host").uuid
    assert {"cores", "load average at start", "memory"} <= set(info.details)


def test_a_device_that_is_not_here_is_refused_with_those_that_are() -> None:
    with pytest.raises(SpecError) as caught:
        device_info("cuda:63")
    assert caught.value.field == "device"
    assert "host" in caught.value.remedy
