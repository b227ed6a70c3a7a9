"""What is typed for a container is looked at before an engine is: exit code 2."""

import os
from pathlib import Path

import pytest

from splatfix.containers.certify import certificate_of, read_certificates
from splatfix.containers.image import Image
from splatfix.containers.lanes import find_lane
from splatfix.containers.run import ContainerJob, ContainerOutcome
from splatfix.core.errors import Exit
from tests.plan.machines import refused

PEM = b"# a\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def test_certificates_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_bytes(PEM)
    assert read_certificates(tmp_path / "a.pem") == PEM and read_certificates(None) == b""


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes as POSIX has them")
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/tty", "pipe", "folder", "nothing", "sparse"])
def test_what_is_no_file_is_not_read(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    error = refused(read_certificates, tmp_path / name)
    assert (error.code, error.exit_code) == ("cannot-read", Exit.USAGE)


@pytest.mark.parametrize("content", [b"", b"\0" * 99, b"-----BEGIN PRIVATE KEY-----\n"])
def test_a_file_without_certificates(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    error = refused(read_certificates, tmp_path / "a")
    assert (error.code, error.exit_code) == ("no-certificates", Exit.USAGE)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"verdict": "fine"}', '{"verdict": []}', "[" * 100_000, '{"verdict": 3}']
)
def test_a_strange_certificate_from_inside(content: str, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(content)
    job = ContainerJob(find_lane("cpu"), Image("", "", "", "", reused=True), (), tmp_path)
    error = refused(certificate_of, ContainerOutcome(0, 1.0, (path,), ()), job)
    assert error.code in ("container-report-damaged", "container-no-report")
