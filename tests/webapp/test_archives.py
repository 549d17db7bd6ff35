from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from runner.bundle import ArchiveError
from runner.events import NotePayload
from tests.factories import make_candidate, make_event, make_run, make_user
from webapp.runs import store
from webapp.runs.archives import export_archive, import_archive
from webapp.runs.models import Artifact, Candidate, Event, Run

pytestmark = pytest.mark.django_db


def exported(run: Run) -> bytes:
    file = io.BytesIO()
    export_archive(run, file)
    return file.getvalue()


def forgotten(run: Run) -> bytes:
    """The run's archive, and nothing of it left here, as on another machine."""
    content = exported(run)
    for artifact in Artifact.objects.all():
        store.path(artifact.pk).unlink(missing_ok=True)
    run.delete()
    Artifact.objects.all().delete()
    return content


def make_story() -> Run:
    run = make_run("running")
    make_candidate(run, speedup=1.4)
    make_candidate(run, "wrong_values", parent=1)
    make_candidate(run, speedup=1.9, parent=1, constants={"UNROLL": 4})
    make_event(run, NotePayload("ada", "µ-kernel “quoted” \u202e and 𝛼"))
    return run


def columns(run: Run) -> list[tuple[object, ...]]:
    rows = run.candidates.values_list(
        *("number", "parent__number", "verdict", "speedup", "ci_low", "ci_high", "seq"),
        *("evaluation_seq", "evaluation_text", "source_sha256", "idea", "author", "language"),
    )
    own = (run.uuid, run.spec_text, run.status, run.reason, run.started_at, run.ended_at)
    return [*rows, (*own, run.evaluations, run.last_seq, run.best.number if run.best else None)]


def test_import_then_export_gives_the_same_bytes_and_the_same_rows() -> None:
    run = make_story()
    rows = columns(run)
    content = forgotten(run)
    user = make_user()

    imported = import_archive(io.BytesIO(content), user)

    assert imported.created
    again = Run.objects.select_related("best").get(pk=imported.run.pk)
    assert columns(again) == rows
    assert (again.imported, again.launched_by) == (True, user)
    assert exported(again) == content
    assert store.read(again.candidates.get(number=3).source_sha256)


def test_a_run_that_is_here_already_is_not_imported_again() -> None:
    run = make_story()
    content = exported(run)

    imported = import_archive(io.BytesIO(content), make_user())

    assert (imported.run, imported.created) == (run, False)
    assert Run.objects.count() == 1


def test_the_commands_carry_a_run_from_one_file_to_an_identical_one(tmp_path: Path) -> None:
    content = forgotten(make_story())
    first, second = tmp_path / "a.warpdeck.zip", tmp_path / "b.warpdeck.zip"
    first.write_bytes(content)

    call_command("import_run", str(first), stdout=io.StringIO())
    run = Run.objects.get()
    call_command("export_run", str(run.pk), "-o", str(second), stdout=io.StringIO())

    assert second.read_bytes() == content
    call_command("export_run", run.uuid, "-o", str(second), stdout=io.StringIO())
    assert second.read_bytes() == content
    with pytest.raises(CommandError, match="there is no run 999"):
        call_command("export_run", "999", "-o", str(second))


def rewritten(content: bytes, **entries: bytes) -> bytes:
    """The same archive with other contents under some names."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            new.writestr(info, entries.get(info.filename.split("/")[0], old.read(info)))
    return target.getvalue()


def cut_at_the_end(content: bytes) -> bytes:
    return content[:-40]


def cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def of_other_bytes(content: bytes) -> bytes:
    return b"not a zip at all" * 10


def of_no_bytes(content: bytes) -> bytes:
    return b""


def with_wrong_artifact(content: bytes) -> bytes:
    return rewritten(content, artifacts=b"// not what it was")


def with_an_edited_event(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        events = archive.read("events.jsonl")
    return rewritten(content, **{"events.jsonl": events.replace(b"passed", b"crashd", 1)})


def with_a_path_outside(content: bytes) -> bytes:
    target = io.BytesIO(content)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("../../evil.sh", "rm")
    return target.getvalue()


def with_a_huge_declared_size(content: bytes) -> bytes:
    """The directory claims 10 GB for the first entry."""
    at = content.index(b"PK\x01\x02")
    size = struct.pack("<L", 0xFFFFFFFE)
    return content[: at + 20] + size + size + content[at + 28 :]


def of_a_zip_bomb(content: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b"0" * 50_000_000)
    return target.getvalue()


@pytest.mark.parametrize(
    "broken",
    [
        cut_at_the_end,
        cut_in_half,
        of_other_bytes,
        of_no_bytes,
        with_wrong_artifact,
        with_an_edited_event,
        with_a_path_outside,
        with_a_huge_declared_size,
        of_a_zip_bomb,
    ],
    ids=lambda broken: broken.__name__,
)
def test_a_broken_or_hostile_archive_leaves_nothing_behind(
    broken: Callable[[bytes], bytes],
) -> None:
    content = broken(forgotten(make_story()))
    files = set(settings.ARTIFACTS.rglob("*"))

    with pytest.raises(ArchiveError) as caught:
        import_archive(io.BytesIO(content), make_user())

    assert caught.value.field
    assert caught.value.remedy
    rows = (Run.objects, Event.objects, Candidate.objects, Artifact.objects)
    assert [each.count() for each in rows] == [0, 0, 0, 0]
    assert set(settings.ARTIFACTS.rglob("*")) == files


def test_the_import_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.warpdeck.zip"
    path.write_bytes(b"hello")

    with pytest.raises(CommandError, match="archive: is not a zip file"):
        call_command("import_run", str(path))
    with pytest.raises(CommandError, match="No such file"):
        call_command("import_run", str(tmp_path / "absent.zip"))


def test_a_run_without_events_says_that_it_cannot_be_exported(tmp_path: Path) -> None:
    run = make_run("queued")

    with pytest.raises(CommandError):
        call_command("export_run", str(run.pk), "-o", str(tmp_path / "x.zip"))

    assert not (tmp_path / "x.zip").exists()


def test_a_run_can_be_imported_before_anything_was_ever_started(tmp_path: Path) -> None:
    archive = tmp_path / "a.warpdeck.zip"
    archive.write_bytes(exported(make_story()))
    environment = {**os.environ, "WARPDECK_DATA": str(tmp_path / "data")}

    printed = subprocess.run(
        [sys.executable, "manage.py", "import_run", str(archive)],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert printed.startswith("imported as run 1: softmax")
