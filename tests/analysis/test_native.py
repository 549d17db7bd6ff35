"""Assembly of host code: the same source has the same text, wherever it was compiled."""

from __future__ import annotations

from pathlib import Path

from runner.analysis.native import cpp_levels
from runner.spec import Limits

SOURCE = 'extern "C" void twice(float *x, long n) {\n  for (long i = 0; i < n; ++i) x[i] *= 2;\n}\n'


def test_the_folder_of_the_compiler_is_not_in_the_text(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "another"):
        folder = tmp_path / name
        folder.mkdir()
        [level] = cpp_levels(SOURCE, folder, Limits()).levels
        assert set(level.lines.values()) <= {1, 2, 3}
        assert 2 in level.lines.values()
        texts.append(level.text)
    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0]
