"""What a candidate's own torch code does to the memory that its kernels see.

Owns which torch operations leave memory unwritten, write it or read it. Kernels' accesses pass
through `memory` directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runner.analysis.memory import Memory

MAKE_UNWRITTEN = (
    "aten::empty",
    "aten::empty_like",
    "aten::empty_permuted",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
)


class HostAccesses(TorchDispatchMode):
    """While it is on, every torch operation is told to a Memory."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and importing torch's compiler takes most of a second."""
        return False

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        schema = operation._schema
        if schema.name in MAKE_UNWRITTEN:
            made = operation(*arguments, **keywords)
            self.memory.fresh(made)
            return made
        read, written = _tensors(schema, arguments, keywords)
        if not _is_view(schema):
            for tensor in read:
                self.memory.read_by_host(tensor)
        result = operation(*arguments, **keywords)
        for tensor in written:
            self.memory.written(tensor)
        return result


def _tensors(
    schema: Any, arguments: Any, keywords: Any
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors that an operation reads, and those that it writes without reading."""
    read: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    for position, argument in enumerate(schema.arguments):
        value = arguments[position] if position < len(arguments) else keywords.get(argument.name)
        writes = argument.alias_info is not None and argument.alias_info.is_write
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                (written if writes else read).append(tensor)
    return read, written


def _is_view(schema: Any) -> bool:
    """Whether the result is the same memory under another shape: nothing is read."""
    return any(
        result.alias_info is not None and not result.alias_info.is_write
        for result in schema.returns
    ) or schema.name in ("aten::detach", "aten::_unsafe_view", "aten::alias")
