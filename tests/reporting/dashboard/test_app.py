# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server: who is answered, what is answered, and that nothing can be written."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the extra 'dashboard' is not installed")
from starlette.testclient import TestClient

from feddag.cli.main import app as command_line
from feddag.core.errors import InvalidInput
from feddag.reporting.dashboard.app import make_app
from feddag.reporting.dashboard.serve import is_loopback, serve
from feddag.reporting.dashboard.watch import Watch
from tests.reporting.run_folders import FolderMaker, run_folder


class Clock:
    """A clock that tests set; in its past every file is new."""

    now = 1e9

    def __call__(self) -> float:
        return self.now


HOST, TOKEN = "127.0.0.1:8423", "secret"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("root")
    run_folder(root / "feddag" / "toy" / "a")
    run_folder(root / "fedavg" / "toy" / "b", method="fedavg", clusters=0, until=2)
    return root


def client(root: Path, **headers: str) -> TestClient:
    app = make_app(Watch(root, Clock()), TOKEN, [HOST, "localhost:8423"])
    return TestClient(app, base_url=f"http://{HOST}", headers=headers, raise_server_exceptions=False)


@pytest.fixture
def known(root: Path) -> TestClient:
    found = client(root)
    assert found.get(f"/?token={TOKEN}").status_code == 200  # sets the cookie
    return found


PATHS = ["/", "/api/runs", "/api/sections?ids=x", "/static/plots.js", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
def test_nobody_is_answered_without_the_token(root: Path, path: str) -> None:
    for found in (client(root).get(path), client(root).get(path, params={"token": "wrong"})):
        assert found.status_code == 403
        assert found.text == "open the address that feddag dashboard printed: it holds the token"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8423", "127.0.0.1", "127.0.0.1:80", "", "localhost:1"]
)
@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_host_is_refused(known: TestClient, host: str, path: str) -> None:
    assert known.get(path, headers={"host": host}).status_code == 421


FOREIGN = ["http://evil.example", "https://127.0.0.1:8423", "null", "http://127.0.0.1:8424", "file://", ""]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_origin_is_refused(known: TestClient, origin: str, path: str) -> None:
    assert known.get(path, headers={"origin": origin}).status_code == 403


def test_another_sites_page_cannot_ask_but_the_own_page_can(known: TestClient) -> None:
    assert known.get("/api/runs", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert (
        known.get(
            "/api/runs", headers={"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
        ).status_code
        == 200
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(known: TestClient, method: str) -> None:
    assert known.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_a_strict_policy(known: TestClient, path: str) -> None:
    headers = known.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe-inline" not in headers["content-security-policy"].split("script-src")[1].split(";")[0]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_the_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites(root: Path) -> None:
    cookie = client(root).get(f"/?token={TOKEN}").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_the_list_has_one_row_per_run_and_then_only_what_changed(known: TestClient, root: Path) -> None:
    news = known.get("/api/runs").json()
    rows = {row["label"]: row for row in news["rows"]}
    assert set(rows) == {"feddag/toy/a", "fedavg/toy/b"}
    assert rows["feddag/toy/a"]["status"] == "finished"
    assert (rows["fedavg/toy/b"]["status"], rows["fedavg/toy/b"]["round"]) == ("running", 2)
    again = known.get("/api/runs", params={"since": news["version"]}).json()
    assert again["rows"] == []
    assert set(again["ids"]) == {row["id"] for row in news["rows"]}


def test_the_sections_of_several_runs_stand_side_by_side(known: TestClient) -> None:
    ids = ",".join(row["id"] for row in known.get("/api/runs").json()["rows"])
    found = known.get("/api/sections", params={"ids": ids}).json()
    assert {"accuracy-against-rounds", "cost-bytes", "classes"} <= {plot["key"] for plot in found["plots"]}
    assert '<section id="log">' in found["html"]
    assert 'class="blocks several"' in found["html"]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_odd_questions_get_an_answer_and_no_fault(root_folder: Path, ids: str, since: str) -> None:
    found = client(root_folder)
    found.get(f"/?token={TOKEN}")
    assert found.get("/api/sections", params={"ids": ids}).status_code == 200
    assert found.get("/api/runs", params={"since": since}).status_code == 200


@pytest.fixture(scope="module")
def root_folder(root: Path) -> Path:
    return root


# -- following runs ----------------------------------------------------------------------------------------


def test_a_new_round_and_a_new_run_are_seen_and_the_end_too(tmp_path: Path) -> None:
    import os

    clock = Clock()
    watch = Watch(tmp_path, clock)
    assert watch.news()["rows"] == []
    made = FolderMaker(tmp_path / "run", rounds=2)
    made.start()
    clock.now += 10  # the next search for folders is due
    os.utime(tmp_path / "run" / "events.jsonl", (clock.now, clock.now))
    (row,) = watch.news()["rows"]
    assert (row["status"], row["round"]) == ("running", 0)
    made.round(1)
    os.utime(tmp_path / "run" / "events.jsonl", (clock.now, clock.now))
    (row,) = watch.news(watch.version)["rows"]
    assert (row["round"], row["accuracy"] is None) == (1, False)
    clock.now += 1000
    (row,) = watch.news(watch.version)["rows"]
    assert row["status"] == "stopped"
    made.round(2)
    made.finish()
    (row,) = watch.news(watch.version)["rows"]
    assert (row["status"], row["round"]) == ("finished", 2)
    assert watch.news(watch.version)["rows"] == []


def test_a_run_that_is_removed_leaves_the_list(tmp_path: Path) -> None:
    import shutil

    clock = Clock()
    watch = Watch(tmp_path, clock)
    run_folder(tmp_path / "run")
    assert len(watch.news()["ids"]) == 1
    shutil.rmtree(tmp_path / "run")
    clock.now += 10
    assert watch.news()["ids"] == []


def test_the_inside_of_a_run_is_not_searched_and_links_are_not_followed(tmp_path: Path) -> None:
    run_folder(tmp_path / "root" / "run")
    run_folder(tmp_path / "root" / "run" / "models" / "inner")
    run_folder(tmp_path / "elsewhere")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert [row["label"] for row in Watch(tmp_path / "root").news()["rows"]] == ["run"]


@pytest.mark.parametrize("damage", ["[]", "{", '{"algorithm": 3, "data": []}', "null"])
def test_damaged_files_leave_the_others_alone(tmp_path: Path, damage: str) -> None:
    run_folder(tmp_path / "good")
    bad = run_folder(tmp_path / "bad")
    for name in ("experiment.json", "result.json"):
        (bad / name).write_text(damage)
    found = client(tmp_path)
    found.get(f"/?token={TOKEN}")
    rows = found.get("/api/runs").json()["rows"]
    assert len(rows) == 2
    for row in rows:
        assert found.get("/api/sections", params={"ids": row["id"]}).status_code == 200


# -- starting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])
def test_other_hosts_need_a_flag(tmp_path: Path, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidInput, match="add --allow-others"):
        serve(tmp_path, host, 0, False, print)


def test_this_machine_is_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.0.0.9"))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist: name a folder with runs"):
        serve(tmp_path / "nothing", "127.0.0.1", 0, False, print)


def test_the_command_is_there() -> None:
    assert "dashboard" in {command.callback.__name__ for command in command_line.registered_commands}


def test_the_answers_are_json_that_any_reader_can_read(known: TestClient) -> None:
    json.loads(known.get("/api/runs").text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
