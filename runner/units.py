"""How numbers are written for people: one rule set for the command line, ideas and pages.

Times, rates and sizes carry three significant digits; None is written as an en dash. This module
owns no colour, no alignment and no rounding of stored values.
"""

from __future__ import annotations

MISSING = "–"
_TIMES = ((1e-3, "ns"), (1.0, "µs"), (1e3, "ms"), (1e6, "s"))
_DECIMAL = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))
_BINARY = ((1.0, "B"), (2.0**10, "KiB"), (2.0**20, "MiB"), (2.0**30, "GiB"), (2.0**40, "TiB"))


def duration_us(us: float | None) -> str:
    """Microseconds as `845 ns`, `12.4 µs`, `1.28 ms` or `2.50 s`."""
    return MISSING if us is None else _scaled(us, _TIMES)


def launch(device_us: float, launch_us: float | None) -> str:
    """`device 140 µs · launch 9.8 µs`, and whether the launch takes longer; empty without one."""
    if launch_us is None:
        return ""
    words = f"device {duration_us(device_us)} · launch {duration_us(launch_us)}"
    return f"{words}; launch-bound" if launch_us > device_us else words


def rate_bytes(bytes_per_second: float | None) -> str:
    """Decimal, as `41.3 GB/s`."""
    if bytes_per_second is None:
        return MISSING
    return _scaled(bytes_per_second, tuple((size, f"{name}B/s") for size, name in _DECIMAL))


def rate_flops(flops_per_second: float | None, dtype: str = "") -> str:
    """Decimal, with the dtype when one is given: `1.24 TFLOP/s fp32`."""
    if flops_per_second is None:
        return MISSING
    text = _scaled(flops_per_second, tuple((size, f"{name}FLOP/s") for size, name in _DECIMAL))
    return f"{text} {dtype}".rstrip()


def bytes_iec(size: float | None) -> str:
    """Capacity as `64 MiB`, `1.5 KiB`, `17 B`."""
    if size is None:
        return MISSING
    factor, unit = _step(size, _BINARY)
    value = significant(size / factor)
    return f"{value.rstrip('0').rstrip('.') if '.' in value else value} {unit}"


def speedup(ratio: float | None) -> str:
    """Baseline ÷ candidate as `2.38×`; the caller names the baseline."""
    return MISSING if ratio is None else f"{_ratio(ratio)}×"


def interval(ends: tuple[float, float] | None) -> str:
    """A confidence interval of a ratio as `1.60–1.64`."""
    return MISSING if ends is None else f"{_ratio(ends[0])}–{_ratio(ends[1])}"


def seconds(duration_s: float | None) -> str:
    """A span a person waits for: `0.8 s`, `42 s`, `1 min 40 s`, `31 min`, `2 h 5 min`."""
    if duration_s is None:
        return MISSING
    if duration_s < 9.95:
        return f"{duration_s:.1f}".removesuffix(".0") + " s"
    whole = round(duration_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        return _two(whole // 60, "min", whole % 60, "s")
    minutes = round(duration_s / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return _two(minutes // 60, "h", minutes % 60, "min")
    hours = round(duration_s / 3600)
    return _two(hours // 24, "d", hours % 24, "h")


def dollars(amount: float | None) -> str:
    """`$0.042`, `$2.14`, `$1,250`; a dash where a price is not known."""
    if amount is None:
        return MISSING
    if amount >= 999.995:
        return f"${amount:,.0f}"
    if amount >= 0.0995 or amount == 0:
        return f"${amount:.2f}"
    return f"${amount:.2g}" if amount >= 1e-4 else "<$0.0001"


def tokens(count: int | None) -> str:
    """`812`, `12.4k`, `1.28M`: a count that is read for its size."""
    if count is None:
        return MISSING
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return f"{significant(count / size)}{unit}"
    return str(count)


def significant(value: float) -> str:
    """Three significant digits without an exponent: `0.912`, `12.4`, `845`, `1234`."""
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude >= 99.95:
        return f"{value:.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    if magnitude >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}" if magnitude >= 1e-4 else f"{value:.2e}"


def _ratio(value: float) -> str:
    """Two decimals under ten: the third digit of a small ratio is noise on most machines."""
    return significant(value) if value >= 9.995 else f"{value:.2f}"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    factor, unit = _step(value, steps)
    return f"{significant(value / factor)} {unit}"


def _step(value: float, steps: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The largest unit in which the rounded value is at least 1, else the smallest."""
    fitting = [step for step in steps if abs(value) >= 0.9995 * step[0]]
    return fitting[-1] if fitting else steps[0]
