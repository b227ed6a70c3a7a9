"""A toolkit that does not know the GPU's own number: where an older sibling serves, where only PTX does, where nothing."""

from splatfix.knowledge.archs import Arch, cubin_runs_on, known_archs, toolkit_supports
from splatfix.model import Status

from .conftest import Changer, cuda, of


def test_every_toolkit_and_gpu_of_the_tables(changed: Changer) -> None:
    """FAIL exactly where this nvcc compiles no machine code that the GPU runs."""
    seen = set()
    for version in ((11, 1), (11, 8), (12, 4), (12, 8), (12, 9), (13, 0)):
        archs = tuple(arch.sm for arch in known_archs() if toolkit_supports(version, arch))
        facts = changed(**cuda(f"{version[0]}.{version[1]}.1", *archs))
        for arch in known_archs():
            serves = any(cubin_runs_on(Arch.parse(name), arch) for name in archs)
            (finding,) = of(facts, "toolkit-arch-unsupported", arch.sm)
            status = finding.status
            assert (status is Status.FAIL) == (not serves), (version, arch)
            assert (status is Status.PASS) == (arch.sm in archs)
            seen.add(status)
    assert seen == {Status.PASS, Status.SKIP, Status.FAIL}
