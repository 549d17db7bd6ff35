"""Loads a problem's reference module from its file, as the evaluation does."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from kernels.catalog import Problem


def reference_of(problem: Problem) -> Callable[..., torch.Tensor]:
    reference: Callable[..., torch.Tensor] = module_of(problem.reference_path).reference
    return reference


@functools.cache
def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"reference_of_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
