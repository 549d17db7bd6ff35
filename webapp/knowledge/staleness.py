"""Why an entry may not hold any more: what it stands on has changed since it was measured.

Compares an entry with the catalog and the versions of this installation. It decides nothing: a
person retires entries.
"""

from __future__ import annotations

import hashlib
import re
from importlib import metadata

from kernels.catalog import UnknownProblem, ZooKernel, load_problem
from runner.tuning import Setting
from webapp.knowledge.models import Entry

COMPARED = ("torch", "triton")  # what baselines and kernels are built with; patch releases aside
_RELEASE = re.compile(r"\d+\.\d+")


def doubts(entry: Entry) -> tuple[str, ...]:
    """Reasons to measure again before the entry is relied on; none if nothing speaks against it."""
    return (*_catalog_doubts(entry), *_version_doubts(entry))


def _catalog_doubts(entry: Entry) -> tuple[str, ...]:
    try:
        problem = load_problem(entry.problem)
    except UnknownProblem:
        return (f"the problem {entry.problem} is not in the catalog any more",)
    if not entry.kernel:
        return ()
    kernels = [kernel for kernel in problem.zoo if kernel.name == entry.kernel]
    if not kernels:
        return (f"the kernel {entry.kernel} is not in the zoo any more",)
    return _kernel_doubts(entry, kernels[0])


def _kernel_doubts(entry: Entry, kernel: ZooKernel) -> tuple[str, ...]:
    offered = {parameter.name: parameter.values for parameter in kernel.parameters}
    lost = [
        f"{name} = {value}"
        for name, value in entry.constants.items()
        if value not in offered.get(name, ())
    ]
    if lost:
        return (f"{kernel.name} no longer offers {', '.join(lost)}",)
    if set(entry.constants) != set(offered):
        return ()
    setting = Setting(kernel, tuple(entry.constants[name] for name in offered))
    measured = entry.evidence.get("source_sha256", "")
    if measured and hashlib.sha256(setting.source.encode()).hexdigest() != measured:
        return (f"the source of {kernel.name} has changed since it was measured",)
    return ()


def _version_doubts(entry: Entry) -> tuple[str, ...]:
    measured = entry.evidence.get("versions", {})
    pairs = ((name, str(measured.get(name, "")), _installed(name)) for name in COMPARED)
    return tuple(
        f"it was measured with {name} {then}; here it is {now}"
        for name, then, now in pairs
        if _release(then) and _release(now) and _release(then) != _release(now)
    )


def _release(version: str) -> str:
    found = _RELEASE.match(version)
    return found[0] if found else ""


def _installed(package: str) -> str:
    """Empty where it is not installed: then there is nothing to compare with."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
