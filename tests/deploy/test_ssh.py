"""What can be the matter with a device, each told in three lines; by a real sshd and a real rsync."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgeq.deploy.job import deploy, look
from edgeq.deploy.rsync import _failure, send
from edgeq.deploy.ssh import Device, LostConnection
from edgeq.spec.errors import EdgeqError, RequestError
from tests.deploy.sshd import ADDRESS, Link, Sshd, free_port


@pytest.fixture
def device(sshd: Sshd, tmp_path: Path) -> Device:
    return Device.parse(ADDRESS, f"{tmp_path}/a board", sshd.ssh())


def quiet(_: str) -> None:
    pass


def test_words_arrive_as_they_are(device: Device) -> None:
    words = ["printf", "%s|", "a b", "$HOME", "it's", '"', "*", ";", ""]
    assert device.run(words).stdout == "a b|$HOME|it's|\"|*|;||"
    assert device.run(["sh", "-c", "cat; exit 7"], "given").stdout == "given"


def test_a_device_is_looked_at(device: Device, tmp_path: Path) -> None:
    found = look(device)
    assert found.machine
    assert found.rsync
    assert found.free > 0
    assert (found.unpacked, found.copied) == (None, {})
    board = tmp_path / "a board"
    (board / "edgeq-x").mkdir(parents=True)
    (board / "edgeq-x" / "bundle.json").write_text("{}")
    (board / "edgeq-x.pyz").write_bytes(b"12345")
    found = look(device)
    assert found.unpacked == f"{board}/edgeq-x"
    assert found.copied == {"edgeq-x.pyz": 5}


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "", "user@", "a b", "host:22", "it's"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(RequestError, match="is not an address"):
        Device.parse(address, "edgeq", "ssh")


@pytest.mark.parametrize(("folder", "program"), [("", "ssh"), ("-x", "ssh"), ("edgeq", "ssh 'x"), ("edgeq", "")])
def test_options_that_make_no_command_are_refused(folder: str, program: str) -> None:
    with pytest.raises(RequestError, match="--ssh"):
        Device.parse("pi", folder, program)


def failure(device: Device, bundle: Path) -> EdgeqError:
    with pytest.raises(EdgeqError) as failed:
        deploy(device, bundle, None, quiet)
    assert "\n" not in failed.value.what + failed.value.why + failed.value.hint
    return failed.value


def test_nobody_answers(sshd: Sshd, bundle: Path) -> None:
    found = failure(Device.parse(ADDRESS, "edgeq", sshd.ssh(free_port())), bundle)
    assert found.code == "unreachable"
    assert "refused" in found.why
    assert isinstance(found, LostConnection)
    found = failure(Device.parse("nobody@no-such-host.invalid", "edgeq", "ssh -F none"), bundle)
    assert found.code == "unreachable"


def test_the_key_is_not_known_there(sshd: Sshd, bundle: Path) -> None:
    found = failure(Device.parse(ADDRESS, "edgeq", sshd.ssh(key="stranger")), bundle)
    assert found.code == "permission-denied"
    assert "ssh-copy-id" in found.hint


def test_it_is_another_host(sshd: Sshd, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("device " + (sshd.folder / "stranger.pub").read_text())
    program = sshd.ssh().replace(f"{sshd.folder}/known", f"{tmp_path}/known")
    found = failure(Device.parse(ADDRESS, "edgeq", program), bundle)
    assert found.code == "host-key"
    assert "ssh-keygen -R" in found.hint


def test_it_has_no_python_and_no_rsync(sshd: Sshd, bundle: Path, tmp_path: Path) -> None:
    bare = Device.parse(ADDRESS, f"{tmp_path}/board", sshd.ssh(key="bare"))
    found = failure(bare, bundle)
    assert (found.code, "python3" in found.what) == ("no-tool", True)
    assert "apt install python3" in found.hint
    with pytest.raises(EdgeqError) as failed:
        send(bare, bundle)  # it was there when it was looked for
    assert failed.value.code == "no-tool"
    assert "apt install rsync" in failed.value.hint


@pytest.mark.parametrize(("version", "code"), [("3.9.64", "old-python"), ("3.11.32", "unsupported-cpu")])
def test_its_python_is_too_old_or_too_small(
    device: Device, bundle: Path, tmp_path: Path, version: str, code: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    with pytest.raises(EdgeqError) as failed:
        deploy(device, bundle, str(python), quiet)
    assert failed.value.code == code
    assert not Path(device.folder).exists()


def test_a_disk_that_fills_up_there_is_told(device: Device) -> None:
    said = """rsync: [receiver] write failed on "/x/edgeq.pyz": No space left on device (28)
rsync error: error in file IO (code 11) at receiver.c(380) [receiver=3.2.7]"""
    found = _failure(device, 11, said)
    assert found.code == "disk-full"
    assert "No space left" in found.why


def test_there_is_no_program_here(
    device: Device, bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "ssh").symlink_to(shutil.which("ssh") or "ssh")
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(EdgeqError, match="no program rsync here") as failed:
        send(device, bundle)
    assert failed.value.hint == "sudo apt install rsync"
    (tools / "ssh").unlink()
    with pytest.raises(EdgeqError, match="no program ssh here") as failed:
        look(device)
    assert failed.value.hint == "sudo apt install openssh-client"


def big(tmp_path: Path, size: int = 2_000_000) -> Path:
    """A file in which no two blocks are alike."""
    file = tmp_path / "edgeq-big.pyz"
    file.write_bytes(b"".join(number.to_bytes(8, "big") for number in range(size // 8)))
    return file


def test_a_copy_that_is_cut_goes_on_where_it_stopped(sshd: Sshd, link: Link, tmp_path: Path) -> None:
    file, board = big(tmp_path, 12_000_000), tmp_path / "board"
    board.mkdir()
    device = Device.parse(ADDRESS, str(board), sshd.ssh(link.port))
    link.break_after(9_000_000)  # several times what lies in the buffers on the way
    with pytest.raises(LostConnection) as lost:
        send(device, file)
    assert lost.value.code == "lost-connection"
    assert "same command again" in lost.value.hint
    partial = (board / file.name).stat().st_size
    assert 0 < partial < file.stat().st_size
    sent = send(device, file)
    assert (board / file.name).read_bytes() == file.read_bytes()
    assert sent.there >= 0.9 * partial  # whole blocks
    assert sent.sent + sent.there == file.stat().st_size
    again = send(device, file)
    assert (again.sent, again.there) == (0, file.stat().st_size)


def test_a_part_that_was_damaged_is_sent_again_and_nothing_else(device: Device, tmp_path: Path) -> None:
    file, board = big(tmp_path), tmp_path / "a board"
    board.mkdir()
    send(device, file)
    copied = board / file.name
    data = bytearray(copied.read_bytes())
    data[700_000] ^= 1
    copied.write_bytes(data)
    sent = send(device, file)
    assert copied.read_bytes() == file.read_bytes()
    assert 0 < sent.sent < 20_000


def test_an_earlier_bundle_that_is_longer_is_replaced(device: Device, tmp_path: Path) -> None:
    file, board = big(tmp_path), tmp_path / "a board"
    board.mkdir()
    (board / file.name).write_bytes(b"an earlier bundle" * 200_000)
    send(device, file)
    assert (board / file.name).read_bytes() == file.read_bytes()
