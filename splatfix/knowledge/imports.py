"""Which distribution an import comes from, where its name does not tell or where a stranger could have taken that name."""

from msgspec import Struct

from splatfix.knowledge.rows import row_of
from splatfix.knowledge.tables import table


class Repository(Struct, frozen=True):
    """Where a module comes from that has to be compiled against the installed torch."""

    module: str
    address: str
    folder: str = ""
    """Of its setup.py, where that is not the top."""
    wheels: str = ""
    """A site that has wheels of it for releases of torch."""

    @property
    def words(self) -> str:
        """As a plan names it: ``torch_scatter, which has to be built from https://...``."""
        if self.wheels:
            return f"{self.module}: a wheel for this torch from {self.wheels}, or a build from {self.address}"
        return f"{self.module}, which has to be built from {self.address}"

    @property
    def clone(self) -> str:
        """The folder to install from, once it is cloned into the current one."""
        return "/".join(filter(None, (".", self.address.rpartition("/")[2], self.folder)))


def requirement_of(module: str) -> str | None:
    """What to tell pip for a module (``opencv-python`` for ``cv2``); None where the table does not know it."""
    row = table("imports")["distributions"].get(module)
    return None if row is None else str(row["install"])


def repository_of(module: str) -> Repository | None:
    """The repository to build a module from; None for one that pip can simply install, or that is not known."""
    return row_of(Repository, "imports", "repositories", module, "module")
