# SPDX-License-Identifier: Apache-2.0
import errno
import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from feddag.core.errors import InvalidInput
from feddag.data.files.download import Download, fetch, fetch_first, receipt_notes
from feddag.data.files.unpack import unpack

CONTENT = bytes(range(256)) * 4000
LIMIT = 10_000_000


def wanted(server, path="/file", **more) -> Download:
    known = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest(), **more}
    return Download(url=server.url + path, name="set/file.bin", **known)


def test_a_file_is_fetched_checked_and_kept(server, tmp_path):
    assert fetch(wanted(server), tmp_path, LIMIT).read_bytes() == CONTENT
    fetch(wanted(server), tmp_path, LIMIT)
    assert len(server.ranges) == 1
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"file.bin", "file.bin.receipt.json"}


def test_a_truncated_answer_is_resumed_where_it_broke(server, tmp_path):
    server.cut_after = 400_000
    assert fetch(wanted(server), tmp_path, LIMIT).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=400000-", "bytes=800000-"]


def test_a_connection_that_keeps_breaking_keeps_the_part_for_the_next_call(server, tmp_path):
    server.cut_after = 100_000
    with pytest.raises(InvalidInput, match="after 300,000 bytes; run again to go on from there"):
        fetch(wanted(server), tmp_path, LIMIT)
    server.cut_after = None
    fetch(wanted(server), tmp_path, LIMIT)
    assert server.ranges[-1] == "bytes=300000-"


def test_a_server_that_does_not_resume_is_asked_for_everything_again(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.bin.part").write_bytes(b"old rubbish")
    server.resumes = False
    assert fetch(wanted(server), tmp_path, LIMIT).read_bytes() == CONTENT


def test_a_wrong_hash_is_refused_before_unpacking_and_the_file_removed(server, tmp_path):
    with pytest.raises(InvalidInput, match=r"sha256 0000.* expected, got .*; nothing was unpacked"):
        fetch(wanted(server, sha256="0" * 64, unpack=True), tmp_path, LIMIT)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_wrong_size_is_refused(server, tmp_path):
    server.content = CONTENT[:-1]
    with pytest.raises(InvalidInput, match="1,024,000 bytes expected, got 1,023,999"):
        fetch(wanted(server), tmp_path, LIMIT)


def test_a_slow_server_ends_in_a_sentence(server, tmp_path):
    server.pause = 2.0
    with pytest.raises(InvalidInput, match="the connection broke"):
        fetch(wanted(server), tmp_path, LIMIT, timeout=0.2)


def test_a_redirect_is_followed(server, tmp_path):
    assert fetch(wanted(server, "/moved"), tmp_path, LIMIT).read_bytes() == CONTENT


def test_a_missing_file_is_said_with_the_servers_words(server, tmp_path):
    with pytest.raises(InvalidInput, match="the server answered 404 Not Found"):
        fetch(wanted(server, "/nothing"), tmp_path, LIMIT)


def test_a_server_that_is_not_there_is_said_in_a_sentence(tmp_path):
    with pytest.raises(InvalidInput, match="the connection broke"):
        fetch(Download(url="http://127.0.0.1:9/file", name="f"), tmp_path, LIMIT)


def test_more_than_the_limit_is_refused_before_the_first_byte(server, tmp_path):
    with pytest.raises(
        InvalidInput, match=r"1,024,000 bytes are more than data.max_download allows \(1,000\)"
    ):
        fetch(wanted(server), tmp_path, 1000)
    assert server.ranges == []


@pytest.mark.parametrize("says_length", [True, False])
def test_a_file_of_unknown_size_stops_at_the_limit(server, tmp_path, says_length):
    server.says_length = says_length
    with pytest.raises(InvalidInput, match="max_download allows"):
        fetch(wanted(server, size=None, sha256=""), tmp_path, 1000)


def test_only_web_addresses_are_fetched(tmp_path):
    with pytest.raises(InvalidInput, match="only http and https"):
        fetch(Download(url="file:///etc/passwd", name="f"), tmp_path, LIMIT)


def test_a_full_disk_is_said_in_a_sentence(server, tmp_path, monkeypatch):
    real_open = Path.open

    def full(path, mode="r", *args, **more):
        file = real_open(path, mode, *args, **more)
        if path.suffix == ".part" and "b" in mode and "r" not in mode:

            class Full:
                def write(self, data):
                    raise OSError(errno.ENOSPC, "No space left on device")

                def __enter__(self):
                    return self

                def __exit__(self, *args):
                    file.close()

            return Full()
        return file

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InvalidInput, match="the disk is full; free some space or set FEDDAG_DATA"):
        fetch(wanted(server), tmp_path, LIMIT)


# -- archives ------------------------------------------------------------------------------------------


def tar(path: Path, members: dict[str, bytes | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_downloaded_archive_is_unpacked(server, tmp_path):
    archive = tar(tmp_path / "a.tar.gz", {"inner/one.txt": b"1", "inner/deep/two.txt": b"2"}).read_bytes()
    server.content = archive
    known = {"size": len(archive), "sha256": hashlib.sha256(archive).hexdigest()}
    folder = tmp_path / "data"
    fetch(Download(url=server.url + "/file", name="a.tar.gz", unpack=True, **known), folder, LIMIT)
    assert files(folder)["inner/one.txt"] == b"1"
    assert files(folder)["inner/deep/two.txt"] == b"2"


@pytest.mark.parametrize(
    "name", ["../out.txt", "inner/../../out.txt", "/etc/out.txt", "..\\out.txt", "C:out.txt"]
)
def test_members_that_lead_out_of_the_folder_are_refused_and_nothing_is_unpacked(tmp_path, name):
    folder = tmp_path / "data"
    folder.mkdir()
    archive = tar(tmp_path / "a.tar.gz", {"good.txt": b"good", name: b"bad"})
    with pytest.raises(InvalidInput, match="leads out of the folder; nothing was unpacked"):
        unpack(archive, folder, LIMIT)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as pack:
        pack.writestr("good.txt", "good")
        pack.writestr(name, "bad")
    with pytest.raises(InvalidInput, match="leads out of the folder; nothing was unpacked"):
        unpack(tmp_path / "a.zip", folder, LIMIT)
    assert files(tmp_path).keys() == {"a.tar.gz", "a.zip"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    archive = tar(tmp_path / "a.tar.gz", {"good.txt": b"good", "link": info})
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(InvalidInput, match="member 'link' is neither a file nor a folder"):
        unpack(archive, folder, LIMIT)
    assert files(folder) == {}


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", {"zeros": bytes(2_000_000)})
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(InvalidInput, match="unpacks to more than 1,000 bytes; nothing was kept"):
        unpack(archive, folder, 1000)
    assert files(folder) == {}


def test_a_damaged_archive_is_said_in_a_sentence(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(InvalidInput, match=r"a.tar.gz: damaged archive"):
        unpack(tmp_path / "a.tar.gz", tmp_path, LIMIT)
    whole = tar(tmp_path / "b.tar.gz", {"file": bytes(CONTENT)}).read_bytes()
    (tmp_path / "b.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match=r"b.tar.gz: damaged archive"):
        unpack(tmp_path / "b.tar.gz", tmp_path, LIMIT)


def test_unpacking_fills_up_a_folder_that_is_there(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "old.txt").write_text("old")
    unpack(tar(tmp_path / "a.tar.gz", {"inner/new.txt": b"new"}), tmp_path, LIMIT)
    assert sorted(p.name for p in (tmp_path / "inner").iterdir()) == ["new.txt", "old.txt"]


def test_an_archive_inside_the_archive_is_unpacked_too_and_as_carefully(tmp_path):
    inner = tar(tmp_path / "inner.tar", {"set/one.txt": b"1"}).read_bytes()
    folder = tmp_path / "data"
    folder.mkdir()
    unpack(tar(tmp_path / "a.tar", {"wrap/inner.tar": inner, "wrap/readme": b"r"}), folder, LIMIT)
    assert files(folder) == {"set/one.txt": b"1", "wrap/readme": b"r"}
    bad = tar(tmp_path / "inner.tar", {"../out.txt": b"bad"}).read_bytes()
    with pytest.raises(InvalidInput, match="leads out of the folder"):
        unpack(tar(tmp_path / "b.tar", {"wrap/inner.tar": bad, "wrap/new": b"n"}), folder, LIMIT)
    assert "wrap/new" not in files(folder)


def test_an_archive_without_a_published_hash_is_counted_before_it_is_kept(server, tmp_path):
    server.content = tar(tmp_path / "a.tar.gz", {"set/one.txt": b"1"}).read_bytes()
    folder = tmp_path / "data"

    def too_few(unpacked):
        return None if len(list(unpacked.rglob("*.txt"))) == 2 else "2 files expected, got 1"

    download = Download(url=server.url + "/file", name="a.tar.gz", unpack=True, wrong=too_few)
    with pytest.raises(InvalidInput, match=r"a.tar.gz: 2 files expected, got 1; nothing was kept"):
        fetch(download, folder, LIMIT)
    assert files(folder) == {}
    assert receipt_notes([download], folder) == {}
    server.content = tar(tmp_path / "a.tar.gz", {"set/one.txt": b"1", "set/two.txt": b"2"}).read_bytes()
    fetch(download, folder, LIMIT)
    (note,) = receipt_notes([download], folder).values()
    assert "hash is NOT published" in note
    assert hashlib.sha256(server.content).hexdigest() in note
    assert server.url in note


def test_a_receipt_says_which_published_hash_was_right(server, tmp_path):
    fetch(wanted(server), tmp_path, LIMIT)
    assert receipt_notes([wanted(server)], tmp_path) == {
        "download file.bin": f"{server.url}/file; SHA-256 as published"
    }
    (tmp_path / "set" / "file.bin.receipt.json").write_text("{")
    assert receipt_notes([wanted(server)], tmp_path) == {}


def test_the_second_of_two_versions_is_fetched_where_the_first_is_gone(server, tmp_path):
    first = replace(wanted(server, "/nothing"), name="first.bin")
    assert fetch_first([first, wanted(server)], tmp_path, LIMIT).read_bytes() == CONTENT
    with pytest.raises(InvalidInput, match=r"answered 404 .*; .*answered 404"):
        fetch_first([first, replace(first, name="second.bin")], tmp_path, LIMIT)
