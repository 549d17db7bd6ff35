"""Python files that belong to no package, as modules: candidates and references of problems."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

CANDIDATE = "candidate"


def module_at(path: str | Path, name: str = CANDIDATE) -> ModuleType:
    """Runs the file. The module stays known under its name even if it raises, as dataclasses and
    tracebacks look there. Raises what the file raises.
    """
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module
