# SPDX-License-Identifier: Apache-2.0
import contextlib
import errno
import hashlib
import io
import tarfile
import threading
import time
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from feddag.core.errors import InvalidInput
from feddag.data.download import Download, fetch, unpack

CONTENT = bytes(range(256)) * 4000
LIMIT = 10_000_000


@dataclass
class Behaviour:
    """How the server misbehaves, and what it was asked."""

    cut_after: int | None = None  # bytes per answer
    pause: float = 0.0
    resumes: bool = True
    content: bytes = CONTENT
    ranges: list[str | None] = field(default_factory=list)
    says_length: bool = True


class Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self):
        b = self.behaviour
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
            return
        if self.path != "/file":
            self.send_error(404)
            return
        b.ranges.append(self.headers.get("Range"))
        start = 0
        if b.resumes and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
        else:
            self.send_response(200)
        body = b.content[start:]
        if b.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        time.sleep(b.pause)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body if b.cut_after is None else body[: b.cut_after])
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    behaviour = Behaviour()
    handler = type("H", (Handler,), {"behaviour": behaviour})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    behaviour.url = f"http://127.0.0.1:{http.server_port}"
    yield behaviour
    http.shutdown()
    http.server_close()
    thread.join()


def wanted(server, path="/file", **more) -> Download:
    known = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest(), **more}
    return Download(url=server.url + path, name="set/file.bin", **known)


def test_a_file_is_fetched_checked_and_kept(server, tmp_path):
    assert fetch(wanted(server), tmp_path, LIMIT).read_bytes() == CONTENT
    fetch(wanted(server), tmp_path, LIMIT)
    assert len(server.ranges) == 1
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["file.bin"]


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
