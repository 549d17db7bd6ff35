from __future__ import annotations

import hashlib

import pytest

from webapp.runs import store


def test_stored_bytes_come_back_and_storing_them_twice_is_one_file() -> None:
    content = b"extern C { }\n" * 3

    first, second = store.put(content), store.put(content)

    assert first == second == hashlib.sha256(content).hexdigest()
    assert store.read(first) == content
    beside = (path.name for path in store.path(first).parent.iterdir())
    assert [name for name in beside if first in name] == [first]  # others' bytes may lie there too


def test_a_damaged_file_is_not_handed_out() -> None:
    sha256 = store.put(b"as it was")
    store.path(sha256).write_bytes(b"as it is")

    with pytest.raises(store.MissingArtifact, match="damaged"):
        store.read(sha256)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_a_name_that_is_no_digest_reaches_no_file(name: str) -> None:
    with pytest.raises(store.MissingArtifact, match="is not a sha256"):
        store.read(name)


def test_an_unknown_digest_is_missing() -> None:
    with pytest.raises(store.MissingArtifact, match="no artifact"):
        store.read("0" * 64)


def test_bytes_under_a_false_digest_leave_nothing_behind() -> None:
    false = hashlib.sha256(b"something else").hexdigest()

    with pytest.raises(ValueError, match="are not"):
        store.put_chunks([b"these ", b"bytes"], false)

    assert not store.path(false).exists()
    assert list(store.path(false).parent.glob(".new-*")) == []


def test_text_for_a_page_is_capped_and_says_how_long_it_is() -> None:
    sha256 = store.put(b"x" * 1000)

    assert store.read_text(sha256, limit=10) == ("x" * 10, 1000)
