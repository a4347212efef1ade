"""The programs that are compared with are found where they may be, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.nsq import peer


def program(directory: Path) -> str:
    directory.mkdir(parents=True)
    path = directory / "nsqd"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_nsq_programs_are_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, built, in_path, go = (tmp_path / name for name in ("named", "built", "path", "go"))
    monkeypatch.setenv("NSQ_BIN", str(named))
    monkeypatch.setattr(peer, "BUILT", built)
    monkeypatch.setenv("PATH", str(in_path))
    monkeypatch.setattr(peer, "GO_BIN", go)
    assert peer.nsq_program("nsqd") is None
    for place in (go, in_path, built, named):
        path = program(place)
        assert peer.nsq_program("nsqd") == path
    assert peer.nsq_program("nsqlookupd") is None
    monkeypatch.delenv("NSQ_BIN")
    assert peer.nsq_program("nsqd") == str(built / "nsqd")
