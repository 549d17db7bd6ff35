"""Languages: rewriting constants, and compiling without running anything."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from runner import languages, sandbox
from runner.languages import MissingCompiler
from runner.processes import Cancelled
from runner.spec import Limits

isolated = pytest.mark.skipif(
    not sandbox.isolation().usable, reason=f"no bubblewrap: {sandbox.isolation().sentence}"
)
SLOW_TO_COMPILE = """
constexpr long spin(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i % 7; return s; }
static_assert(spin(1L << 24) > 0);
"""


def test_the_languages_are_the_files_of_the_folder() -> None:
    assert languages.names() == ["cpp", "triton"]
    assert languages.for_suffix(".cpp").LANGUAGE == "cpp"
    assert languages.for_suffix(".py").LANGUAGE == "triton"


def test_an_unknown_language_or_suffix_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LookupError, match="cpp, triton"):
        languages.get("fortran")
    with pytest.raises(LookupError, match=r"\.cpp \(cpp\)"):
        languages.for_suffix(".f90")


def test_a_cpp_constant_is_rewritten_in_place() -> None:
    source = "constexpr int UNROLL = 4;  // why\nint f() { return UNROLL + 4; }\n"
    rewritten = languages.get("cpp").set_constants(source, {"UNROLL": 8})
    assert rewritten == source.replace("UNROLL = 4", "UNROLL = 8")


def test_a_static_cpp_constant_with_a_negative_value_is_rewritten() -> None:
    source = "static constexpr int SHIFT = -1;\n"
    rewritten = languages.get("cpp").set_constants(source, {"SHIFT": 3})
    assert rewritten == "static constexpr int SHIFT = 3;\n"


def test_a_python_constant_is_rewritten_at_module_level_only() -> None:
    source = "BLOCK = 64  # why\n\ndef run(x):\n    BLOCK = 1\n    return x\n"
    rewritten = languages.get("triton").set_constants(source, {"BLOCK": 128})
    assert rewritten == source.replace("BLOCK = 64", "BLOCK = 128")


def test_an_annotated_python_constant_is_rewritten() -> None:
    source = "BLOCK: tl.constexpr = 64\n"
    rewritten = languages.get("triton").set_constants(source, {"BLOCK": 128})
    assert rewritten == "BLOCK: tl.constexpr = 128\n"


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("cpp", "int A = 4;\n"),
        ("cpp", "// constexpr int A = 4;\n"),
        ("cpp", "constexpr int A = 4;\nconstexpr int A = 5;\n"),
        ("cpp", "constexpr int AB = 4;\n"),
        ("triton", "    A = 4\n"),
        ("triton", "A = 4.5\n"),
        ("triton", "A = B\n"),
        ("triton", "A = 4\nA = 5\n"),
    ],
)
def test_a_constant_not_declared_exactly_once_is_named(language: str, source: str) -> None:
    with pytest.raises(ValueError, match="constant A is declared"):
        languages.get(language).set_constants(source, {"A": 1})


def test_cpp_compiles_to_a_shared_object(tmp_path: Path) -> None:
    result = languages.get("cpp").compile('extern "C" int f() { return 1; }', tmp_path, Limits())
    assert result.ok
    assert result.artifact is not None
    assert result.artifact.read_bytes()[:4] == b"\x7fELF"
    assert "g++" in result.versions["g++"]


def test_a_cpp_error_names_line_and_reason_without_the_build_folder(tmp_path: Path) -> None:
    result = languages.get("cpp").compile("int f() {\n  return nothing;\n}\n", tmp_path, Limits())
    assert not result.ok
    assert result.artifact is None
    assert result.reason.startswith("candidate.cpp:2:")
    assert str(tmp_path) not in result.output


def test_a_flood_of_compiler_output_is_capped(tmp_path: Path) -> None:
    source = "\n".join(f"int f{i}() {{ return nothing{i}; }}" for i in range(3000))
    result = languages.get("cpp").compile(source, tmp_path, Limits())
    assert not result.ok
    assert len(result.output) < 40_000
    assert "output capped here" in result.output


def test_a_compilation_past_its_deadline_is_stopped(tmp_path: Path) -> None:
    limits = Limits(compile_s=0.2)
    source = SLOW_TO_COMPILE + "#include <regex>\n#include <algorithm>\n#include <iostream>\n"
    result = languages.get("cpp").compile(source, tmp_path, limits)
    assert not result.ok
    assert "stopped after 0.2 s" in result.reason


@isolated
@pytest.mark.parametrize("way", ['#include "{}"', 'asm(".incbin \\"{}\\"");'])
def test_a_source_cannot_take_files_of_this_machine_into_its_library(
    tmp_path: Path, way: str
) -> None:
    secret, build = tmp_path / "secret.h", tmp_path / "build"
    secret.write_text("// opensesame\n")
    build.mkdir()
    near = build / "own.h"
    near.write_text("// its own\n")
    cpp = languages.get("cpp")
    assert cpp.compile(way.format(near), build, Limits()).ok
    result = cpp.compile(way.format(secret), build, Limits())
    assert not result.ok
    assert "opensesame" not in result.output


def test_a_compiler_sees_no_secret_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "opensesame")
    for process in ("self", "1"):
        source = f'asm(".incbin \\"/proc/{process}/environ\\"");'
        result = languages.get("cpp").compile(source, tmp_path, Limits())
        assert result.artifact is None or b"opensesame" not in result.artifact.read_bytes()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('asm(".fill 2000000000, 1, 1");', "File too large"),
        ('#include "/dev/zero"', "out of memory"),
    ],
)
def test_a_source_cannot_make_the_compiler_take_all_memory_or_disk(
    tmp_path: Path, source: str, words: str
) -> None:
    result = languages.get("cpp").compile(source, tmp_path, Limits())
    assert not result.ok
    assert words in result.reason
    assert [path.name for path in tmp_path.iterdir()] == ["candidate.cpp"]


def test_a_cancelled_compilation_raises(tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        languages.get("cpp").compile(SLOW_TO_COMPILE, tmp_path, Limits(), cancel=cancel)


def test_a_missing_compiler_is_reported_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingCompiler) as caught:
        languages.get("cpp").compile("", tmp_path, Limits())
    assert "apt-get install g++" in caught.value.remedy


def test_a_python_source_is_parsed_and_not_run(tmp_path: Path) -> None:
    source = "raise SystemExit(3)\ndef run(x): return x\n"
    result = languages.get("triton").compile(source, tmp_path, Limits())
    assert result.ok
    assert result.artifact is not None
    assert result.artifact.read_text() == source


def test_a_python_syntax_error_names_its_line(tmp_path: Path) -> None:
    result = languages.get("triton").compile("x = 1\ndef run(:\n", tmp_path, Limits())
    assert not result.ok
    assert result.reason.startswith("candidate.py:2:")


def test_a_python_source_too_long_to_parse_safely_is_refused(tmp_path: Path) -> None:
    source = "def run(x):\n    return x\n" + "# padding\n" * 30_000
    result = languages.get("triton").compile(source, tmp_path, Limits())
    assert not result.ok
    assert "the longest source that is read" in result.reason


def test_a_python_module_without_run_does_not_compile(tmp_path: Path) -> None:
    result = languages.get("triton").compile("def walk(x): return x\n", tmp_path, Limits())
    assert not result.ok
    assert "run(*inputs)" in result.reason


@pytest.mark.parametrize("source", ["run = print\n", "from operator import neg as run\n"])
def test_run_may_be_bound_in_any_way(tmp_path: Path, source: str) -> None:
    assert languages.get("triton").compile(source, tmp_path, Limits()).ok
