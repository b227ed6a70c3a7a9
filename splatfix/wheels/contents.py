"""What is in a wheel, read in place, the smallest first: metadata, the face of its packages, GPU code, torch's symbols."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from email.parser import HeaderParser

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from splatfix.binaries import Binary, BinaryError, missing_exports
from splatfix.binaries._bytes import Reader
from splatfix.binaries.reader import is_native_name, parse
from splatfix.binaries.symbols import parse_exported, parse_needs
from splatfix.binaries.wheel import Member, members, opened_member
from splatfix.context import Context
from splatfix.context.coverage import targets_by_module
from splatfix.core.errors import Exit
from splatfix.core.limits import MOST_INSTALLED, MOST_LIBRARIES, MOST_SOURCE
from splatfix.core.versions import release
from splatfix.core.words import counted, few
from splatfix.facts import of_torch, torch_libraries
from splatfix.facts.checkout import read_package_source
from splatfix.knowledge.stacks import Traits, best_matches, explain_mismatch, variant, variants
from splatfix.knowledge.wheel_tags import extension_file_fits, python_of_file
from splatfix.model import Interpreter, PackageSource, Torch, loaded_fatbins
from splatfix.wheels.model import Wanted, unfit

# libcudart.so.12, cudart64_12.dll, and cudart64_110.dll of CUDA 11
_CUDART = re.compile(r"(?:libcudart\.so\.|cudart64_)(\d\d)")


class Refused(Exception):
    """A wheel will not do, or (exit code ``UNDETERMINED``) that cannot be told."""

    def __init__(self, code: str, reason: str, exit_code: Exit = Exit.FAILURE) -> None:
        super().__init__(reason)
        self.rejected = unfit(code, reason, exit_code)


class Contents(Struct, frozen=True):
    """A wheel that is looked into."""

    reader: Reader
    wanted: Wanted
    context: Context
    interpreter: Interpreter
    torch: Torch

    def prove(self, version: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What shows that it will do: what its METADATA says of it, and the evidence, a clause each.

        Args:
            version: in its file name.

        Raises:
            Refused: with what speaks against it.
            BinaryError: the wheel, or a library in it, is damaged.
            WebError: from the reader.
        """
        listed = tuple(members(self.reader, lambda name: not name.endswith("/")))
        natives = [item for item in listed if is_native_name(item.name.rpartition("/")[2])]
        metadata = self._check_metadata(listed, version)
        face = self._check_faces(listed)
        if not natives:
            reason = "it holds no compiled library"
            if any(item.name.endswith(".cu") for item in listed):
                reason += ": its CUDA code is compiled when it is first used"
            raise Refused("no-gpu-code", reason)
        if len(natives) > MOST_LIBRARIES or sum(item.size for item in natives) > MOST_INSTALLED:
            most = f"{MOST_LIBRARIES} libraries or {MOST_INSTALLED >> 30} GiB of them"
            raise BinaryError(f"more than {most} in one archive: not a real wheel")
        for item in natives:
            name = item.name.rpartition("/")[2]
            if python_of_file(name) and not extension_file_fits(name, self.interpreter.abi_tag):
                raise Refused(
                    "wrong-python", f"{item.name} is for another Python than {self.interpreter.abi_tag}"
                )
        with ExitStack() as stack:
            opened = {item.name: stack.enter_context(opened_member(self.reader, item)) for item in natives}
            binaries = [parse(reader, name) for name, reader in opened.items()]
            code = self._check_code(binaries)
            # they link the CUDA runtime of torch's major, which is the one that is loaded
            ours = release(self.torch.cuda or "")[:1]
            for binary, needed in ((item, name) for item in binaries for name in item.needed):
                runtime = _CUDART.match(needed)
                if runtime and (int(runtime.group(1)),) != ours:
                    reason = f"{binary.path} links {needed}, and torch here is for CUDA {self.torch.cuda}"
                    raise Refused("wrong-cuda", reason)
            symbols = self._check_symbols(list(opened.values()))
        return metadata, (*face, *code, symbols)

    def _check_metadata(self, listed: Sequence[Member], version: str) -> tuple[str, ...]:
        """It is the distribution and the version that its name says, and asks for this torch."""
        infos = [
            item for item in listed if item.name.count("/") == 1 and item.name.endswith(".dist-info/METADATA")
        ]
        if len(infos) != 1:
            raise BinaryError(f"it has {len(infos)} METADATA where one belongs")
        metadata = HeaderParser().parsestr(self._text(infos[0]))
        name = metadata["Name"] or ""
        if canonicalize_name(name) != canonicalize_name(self.wanted.name):
            raise Refused("wrong-name", f"its METADATA calls it {name or 'nothing'}")
        stated = metadata["Version"] or ""
        # publishers rename what they built for several torches: then the local part is in the name only
        if Version(Version(stated).public) != Version(Version(version).public):
            raise Refused("wrong-version", f"its METADATA says {stated}, and its name {version}")
        torch = Version(self.torch.version)
        requires = metadata.get_all("Requires-Dist") or ()
        for text in requires:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if requirement.name == "torch" and not requirement.specifier.contains(torch, prereleases=True):
                reason = f"it requires torch{requirement.specifier}, and here is {self.torch.version}"
                raise Refused("wrong-torch", reason)
        return (name, stated, *requires)

    def _check_faces(self, listed: Sequence[Member]) -> list[str]:
        """Its packages are called as the source, or the variant that was asked for, is called."""
        sources = {}
        for item in listed:
            module, _, rest = item.name.partition("/")
            if rest == "__init__.py" and module.isidentifier():
                sources[module] = item
        faces = []
        for expected in self.wanted.packages:
            if expected.module not in sources:
                raise Refused("wrong-face", f"it has no package {expected.module}")
            face = self._face(sources, expected.module)
            if difference := face_difference(face, expected):
                raise Refused("wrong-face", f"{difference} ({self.wanted.source})")
            if face.returns != expected.returns:
                reason = f"what {expected.module} returns could not be read of both"
                raise Refused("face-unknown", reason, Exit.UNDETERMINED)
            faces.append(f"{expected.module} is called as in {self.wanted.source}")
        if not faces:
            called = {row.module for row in map(variant, self.wanted.variants) if row}
            if called and not called & sources.keys():
                raise Refused("wrong-face", f"it has no package {' or '.join(sorted(called))}")
            for module in sources:
                if any(row.kind == "rasterizer" for row in variants(module)):
                    faces.append(self._check_variant(self._face(sources, module)))
        return faces

    def _face(self, sources: dict[str, Member], module: str) -> PackageSource:
        try:
            return read_package_source(module, self._text(sources[module]))
        except ValueError as error:
            reason = f"{module}/__init__.py cannot be read: {error}"
            raise Refused("face-unknown", reason, Exit.UNDETERMINED) from error

    def _check_variant(self, face: PackageSource) -> str:
        traits = Traits(face.settings, face.exports or None, face.returns, face.forward, face.classes or None)
        names = " or ".join(best_matches(face.module, traits)) or "none that splatfix knows"
        returned = f", and returns {returns_of(face)}" if returns_of(face) else ""
        which = f"its rasterizer is the variant {names}{returned}"
        if not self.wanted.variants:
            ask = "which one is called is not known: name the checkout, or a variant such as inria-v1"
            raise Refused("face-unknown", f"{which}; {ask}", Exit.UNDETERMINED)
        if not any(explain_mismatch(key, traits) == () for key in self.wanted.variants):
            called = []
            for key in self.wanted.variants:
                row = variant(key)
                if row:
                    called.append(f"{key}, which returns {', '.join(row.returns or ())}")
            raise Refused("wrong-face", f"{which}; what calls it expects {' or '.join(called)}")
        if face.returns is None:
            raise Refused("face-unknown", f"{which}, but what it returns cannot be read", Exit.UNDETERMINED)
        return which

    def _check_code(self, binaries: Sequence[Binary]) -> list[str]:
        carrying = [binary for binary in binaries if any(not fatbin.empty for fatbin in binary.fatbins)]
        if not carrying:
            raise Refused("no-gpu-code", f"{few([item.path for item in binaries])} holds no GPU code")
        targets = targets_by_module(carrying, self.context.archs)
        shown = []
        for binary in carrying:
            filled = loaded_fatbins(binary.fatbins)
            for target in targets[binary.path]:
                coverage = self.context.judge(filled, target)
                if not coverage.usable:
                    carries = ", ".join(f"{kind.value} {arch}" for kind, arch in binary.archs)
                    raise Refused(
                        "wrong-gpu-code",
                        f"{binary.path}: {coverage.reason} (it carries {carries or 'nothing'})",
                    )
                shown.append(f"{binary.path} {coverage.reason}, in {counted(len(filled), 'fatbin')}")
        return shown

    def _check_symbols(self, natives: Sequence[Reader]) -> str:
        """Every symbol of torch that they want is exported by the torch that is here, or by one of them."""
        symbols: list[str] = []
        for reader in natives:
            symbols += [name for name in parse_needs(reader).imported if of_torch(name)]
        symbols = list(dict.fromkeys(symbols))
        if not symbols:
            return "it needs no symbol of torch"
        libraries = torch_libraries(self.torch)
        if not libraries:
            reason = f"torch's libraries are not in {self.torch.folder}, so its symbols cannot be compared"
            raise Refused("torch-unreadable", reason, Exit.UNDETERMINED)
        lost = missing_exports(symbols, libraries)
        for reader in natives:
            own = parse_exported(reader, lost)
            lost = tuple(name for name in lost if name not in own)
        if lost:
            number = counted(len(lost), "symbol")
            reason = f"it needs {number} that torch {self.torch.version} does not have, such as {lost[0]}"
            raise Refused("torch-symbols-missing", reason)
        return f"all {counted(len(symbols), 'torch symbol')} found in torch {self.torch.version}"

    def _text(self, member: Member) -> str:
        if member.size > MOST_SOURCE:
            raise BinaryError(f"{member.name} has {member.size} bytes: not a real wheel")
        with opened_member(self.reader, member) as contents:
            return contents.take(0, contents.size, member.name).decode("utf-8", "replace")


def face_difference(face: PackageSource, expected: PackageSource) -> str:
    """In what a package is called otherwise than is expected, as a clause; "" for nothing."""
    for label, have, expect in (
        ("its settings are", face.settings, expected.settings),
        ("its forward takes", face.forward, expected.forward),
    ):
        if have is not None and expect is not None and have != expect:
            missing = [name for name in expect if name not in have] or ["another order"]
            more = [name for name in have if name not in expect]
            extra = f", and has {', '.join(more)} besides" if more else ""
            return f"{label} others: it lacks {', '.join(missing)}{extra}"
    if (face.settings is None) != (expected.settings is None):
        return "only one of the two has a Settings tuple"
    if face.returns and expected.returns and face.returns != expected.returns:
        return f"it returns {returns_of(face)}, and what it replaces {returns_of(expected)}"
    lost = sorted({*expected.classes} - {*face.classes}) + sorted({*expected.exports} - {*face.exports})
    if lost:
        return f"it lacks {', '.join(lost)}"
    return ""


def returns_of(face: PackageSource) -> str:
    """``color, radii``, or ``2 values``; "" where it is not read."""
    if face.values:
        return ", ".join(face.values)
    if face.returns:
        return counted(face.returns, "value")
    return ""
