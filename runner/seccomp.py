"""A filter on the system calls of untrusted code: what no kernel needs is refused by the kernel.

Owns the list of refused calls and the filter program, for x86-64 and AArch64. Everything else stays
allowed, so that threads, subprocesses, compilers and the CUDA driver work as before; the filter is
a second wall behind the namespaces, and without bubblewrap the only one. A call that is allowed
takes 40 ns longer (getppid and futex, x86-64, Linux 6.18).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

# Call numbers on x86-64 and on AArch64. Grouped by what an attacker would want them for.
REFUSED = {
    # Words for the next candidate that outlive their process.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # The memory, descriptors and secrets of other processes.
    "ptrace": (101, 117),
    "kcmp": (312, 272),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    # The priority of all processes of a user: the next candidates inherit that of their parent.
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    # Other views of the machine: namespaces, mounts, roots.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    # Wide doors of the kernel itself.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    # The machine as a whole.
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
}
# The first argument names a process: itself or another, but not its parent.
OF_A_PROCESS = {
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "prlimit64": (302, 261),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
NEW_NAMESPACES = 0x7E02_0000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
# Sockets that a network namespace confines, or that programs need to ask about it. AF_VSOCK, for
# one, reaches the hypervisor from any namespace.
FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
_X32 = 0x4000_0000  # numbers of x86-64's second set of calls begin here
_SET_MODE_FILTER, _ALL_THREADS, _KEEP_SPECULATION = 1, 1, 4
_PR_SET_NO_NEW_PRIVS = 38
_Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand


@dataclass(frozen=True)
class Architecture:
    """`column` is where its numbers stand in REFUSED; the others are treated apart."""

    column: int
    audit: int  # AUDIT_ARCH_*, which the kernel reports with each call
    clone: int
    clone3: int
    socket: int
    socketpair: int
    seccomp: int


ARCHITECTURES = {
    "x86_64": Architecture(0, 0xC000_003E, 56, 435, 41, 53, 317),
    "aarch64": Architecture(1, 0xC000_00B7, 220, 435, 198, 199, 277),
}


def install() -> bool:
    """Filter this process and all it starts, for good. False where that is not possible.

    Without the flag on speculation, kernels before 5.16 would slow the process down: they turn
    mitigations on for whoever installs a filter, and a candidate is compared with a baseline
    that has none.
    """
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        return False
    program = _program(architecture, os.getppid())
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    flags = _ALL_THREADS | _KEEP_SPECULATION
    return bool(libc.syscall(architecture.seccomp, _SET_MODE_FILTER, flags, header) == 0)


def _program(architecture: Architecture, parent: int) -> list[_Instruction]:
    """Each test is followed by what it decides, so that no jump reaches further than its block."""
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture.audit),
        _refuse(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(errno.ENOSYS),
        # Its flags lie in memory, out of a filter's reach; the C library falls back on clone.
        *_when(architecture.clone3, _ERRNO | errno.ENOSYS),
        *_by_argument(architecture.clone, [(_ANY_BIT, 0, 1, NEW_NAMESPACES), _refuse(errno.EPERM)]),
    ]
    families = [step for family in FAMILIES for step in _when(family, _ALLOW)]
    for number in (architecture.socket, architecture.socketpair):
        program += _by_argument(number, [*families, _refuse(errno.EAFNOSUPPORT)])
    for numbers in OF_A_PROCESS.values():
        number = numbers[architecture.column]
        program += _by_argument(number, _when(parent, _ERRNO | errno.EPERM))
    for numbers in REFUSED.values():
        program += _when(numbers[architecture.column], _ERRNO | errno.EPERM)
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _by_argument(number: int, decide: list[_Instruction]) -> list[_Instruction]:
    """For the call `number` its first argument decides, and it is allowed if `decide` does not."""
    block = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *decide, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(block), number), *block]


def _when(value: int, answer: int) -> list[_Instruction]:
    return [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]


def _refuse(error: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | error)
