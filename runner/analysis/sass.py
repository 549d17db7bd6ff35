"""Reads nvdisasm's listing: instructions, what each of them is for, and which stand in a loop.

Owns the vocabulary of opcodes. It judges nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from runner.analysis.levels import Level

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_LABEL = re.compile(r"^(\.L\w+):")
_TARGET = re.compile(r"`\((\.L\w+)\)")

# By the part before the first dot. Everything that is not listed is `other`.
_CLASSES = {
    "matrix": "HGMMA IGMMA QGMMA BGMMA HMMA IMMA QMMA BMMA DMMA OMMA UTCHMMA UTCQMMA UTCIMMA "
    "UTCOMMA",
    "fp32": "FFMA FADD FMUL FMNMX FMNMX3 FSEL FSETP FSET FCHK FSWZADD FFMA32I FADD2 FMUL2 FFMA2",
    "fp16": "HFMA2 HADD2 HMUL2 HMNMX2 HSETP2 HSET2",
    "fp64": "DFMA DADD DMUL DSETP DMNMX",
    "special function": "MUFU",
    "integer": "IMAD IADD3 IADD VIADD LOP3 LEA SHF SHL SHR IABS ISETP IMNMX VIMNMX SEL PRMT BFE "
    "POPC PLOP3 FLO LOP IDP IMUL SGXT VABSDIFF BMSK VIADDMNMX IADD64",
    "uniform": "UMOV UIADD3 ULEA ULOP3 USHF USEL UISETP UIMAD R2UR ULDC UPRMT UPLOP3 USGXT UFLO "
    "UPOPC UBREV VOTEU S2UR LDCU UP2UR UVIADD UVIMNMX REDUX",
    "conversion": "F2F I2F F2I F2FP I2FP FRND F2IP I2I I2IP",
    "move": "MOV CS2R S2R R2P P2R MOV32I MOVM",
    "shuffle": "SHFL VOTE MATCH",
    "global load": "LDG LD",
    "global store": "STG ST",
    "atomic": "ATOMG ATOM RED REDG UREDGR",
    "shared atomic": "ATOMS REDS",
    "async copy": "LDGSTS",
    "tma": "UTMALDG UTMASTG UTMAREDG UBLKCP UBLKRED UTMAPF UTMACCTL",
    "shared load": "LDS LDSM",
    "shared store": "STS STSM",
    "local load": "LDL",
    "local store": "STL",
    "tensor memory": "LDTM STTM UTCCP UTCATOMSWS",
    "constant load": "LDC",
    "barrier": "BAR SYNCS WARPSYNC DEPBAR LDGDEPBAR WARPGROUP MEMBAR FENCE UCGABAR_ARV "
    "UCGABAR_WAIT CCTL ERRBAR UTMACMDFLUSH UTCBAR ARRIVES B2R",
    "control": "BRA EXIT RET CALL BSSY BSYNC BREAK JMP BRX NANOSLEEP ELECT KILL YIELD",
    "nothing": "NOP",
}
CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes.split()}


@dataclass(frozen=True)
class Instruction:
    """`opcode` with its modifiers, `line` of the source, `in_loop` if a branch leads back."""

    address: int
    opcode: str
    operands: str
    line: int | None
    in_loop: bool

    @property
    def name(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def kind(self) -> str:
        return CLASS_OF.get(self.name, "other")

    @property
    def bytes(self) -> int:
        """How many bytes a memory instruction moves per thread."""
        modifiers = self.opcode.split(".")[1:]
        for modifier, width in _WIDTHS.items():
            if modifier in modifiers:
                return width
        return 4


_WIDTHS = {"256": 32, "128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1, "8": 1}


def parse(level: Level) -> tuple[Instruction, ...]:
    """The instructions in the order of their addresses."""
    rows: list[tuple[int, str, str, int | None]] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for number, text in enumerate(level.text.splitlines(), 1):
        if label := _LABEL.match(text):
            waiting.append(label[1])
        elif found := _INSTRUCTION.match(text):
            address = int(found[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting.clear()
            rows.append((address, found[3], found[4].strip(), level.lines.get(number)))
    loops = _loops(rows, labels)
    return tuple(
        Instruction(*row, in_loop=any(first <= row[0] <= last for first, last in loops))
        for row in rows
    )


def _loops(
    rows: list[tuple[int, str, str, int | None]], labels: dict[str, int]
) -> list[tuple[int, int]]:
    """Address ranges from the target of a backward branch to the branch.

    A branch to itself is how ptxas pads the end. A few instructions around a barrier test are a
    wait, not a loop.
    """
    loops = []
    waits = {address for address, opcode, _, _ in rows if opcode.startswith("SYNCS.PHASECHK")}
    for address, opcode, operands, _ in rows:
        target = _TARGET.search(operands)
        if not opcode.startswith("BRA") or target is None:
            continue
        start = labels.get(target[1], address)
        waiting = any(start <= wait <= address for wait in waits) and address - start <= 0x80
        if start < address and not waiting:
            loops.append((start, address))
    return loops


def mix(instructions: tuple[Instruction, ...]) -> dict[str, int]:
    """How many instructions of each class the program text holds, most first."""
    counts = Counter(instruction.kind for instruction in instructions)
    counts.pop("nothing", None)
    return dict(counts.most_common())
