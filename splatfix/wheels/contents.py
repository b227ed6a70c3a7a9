"""What is in a wheel, read in place, the smallest first: metadata, the face of its packages, GPU code, torch's symbols."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from email.parser import HeaderParser
from zipfile import ZipFile, ZipInfo

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from splatfix.binaries import Binary, BinaryError, missing_exports
from splatfix.binaries._bytes import Reader
from splatfix.binaries.reader import parse
from splatfix.binaries.symbols import parse_exported, parse_needs
from splatfix.binaries.wheel import native_members, opened_member
from splatfix.context import Context
from splatfix.context.coverage import targets_by_module
from splatfix.core.errors import SplatfixError
from splatfix.core.limits import MOST_INSTALLED, MOST_SOURCE
from splatfix.core.versions import release
from splatfix.core.words import counted, few
from splatfix.facts import of_torch, torch_libraries
from splatfix.facts.checkout import read_package_source
from splatfix.knowledge import Arch
from splatfix.knowledge.stacks import Traits, best_matches, explain_mismatch, variant, variants
from splatfix.knowledge.wheel_tags import extension_file_fits, python_of_file
from splatfix.model import PackageSource, Torch, loaded_fatbins
from splatfix.wheels.model import Wanted

# libcudart.so.12, cudart64_12.dll, and cudart64_110.dll of CUDA 11
_CUDART = re.compile(r"(?:libcudart\.so\.|cudart64_)(\d\d)")


def prove_natives(
    archive: ZipFile, targets: Sequence[Arch], context: Context
) -> tuple[list[Binary], list[str]]:
    """Prove that this Python and torch can load a wheel's compiled members, and that their GPU code serves every target.

    Returns the members, and what was shown of them, a clause each. Raises ``wheel-does-not-fit``, ``wrong-gpu-code``,
    ``torch-symbols-missing``, ``torch-unreadable``, and ``BinaryError`` where the wheel, or a library in it, is damaged.
    """
    natives = native_members(archive)
    if sum(item.file_size for item in natives) > MOST_INSTALLED:
        raise BinaryError(
            f"more than {MOST_INSTALLED >> 30} GiB of libraries in one archive: not a real wheel"
        )
    assert context.interpreter is not None
    abi = context.interpreter.abi_tag
    for item in natives:
        name = item.filename.rpartition("/")[2]
        if python_of_file(name) and not extension_file_fits(name, abi):
            raise SplatfixError.of(
                "wheels.module-of-another-python", member=item.filename, name=name.split(".")[1], abi_tag=abi
            )
    with ExitStack() as stack:
        opened = {item.filename: stack.enter_context(opened_member(archive, item)) for item in natives}
        binaries = [parse(contents, name) for name, contents in opened.items()]
        shown = _prove_code(binaries, targets, context)
        return binaries, [*shown, _prove_symbols(opened, context.torch)]


def _prove_code(binaries: Sequence[Binary], targets: Sequence[Arch], context: Context) -> list[str]:
    carrying = [binary for binary in binaries if loaded_fatbins(binary.fatbins)]
    targets_of = targets_by_module(carrying, targets)
    shown = []
    for binary in carrying:
        filled, served = loaded_fatbins(binary.fatbins), []
        for target in targets_of[binary.path]:
            coverage = context.judge(filled, target)
            if not coverage.usable:
                carries = [f"{kind.value} {arch}" for kind, arch in binary.archs]
                raise SplatfixError.of(
                    "wheels.file-of-wrong-gpu-code",
                    details={"member": binary.path, "target": str(target), "carries": carries},
                    member=binary.path,
                    target=target,
                    reason=coverage.reason,
                    carries=carries or "nothing",
                )
            served.append(f"{target} ({coverage.via.replace('sass', 'native code')})")
        number = len(filled)
        shown.append(f"{binary.path}: {', '.join(served)} in {number} of {counted(number, 'fatbin')}")
    return shown


def _prove_symbols(opened: Mapping[str, Reader], torch: Torch | None) -> str:
    """Prove that the torch that is here, or another library of the wheel, exports every symbol of torch that they want."""
    wanted = {}
    for member, reader in opened.items():
        if names := [name for name in parse_needs(reader).imported if of_torch(name)]:
            wanted[member] = names
    if torch is None or not wanted:
        return "needs nothing of torch"
    libraries = torch_libraries(torch)
    if not libraries:
        raise SplatfixError.of("wheels.torch-unreadable", folder=torch.folder)
    for member, names in wanted.items():
        lost = missing_exports(names, libraries)
        for other, reader in opened.items():
            own = parse_exported(reader, lost) if other != member else ()
            lost = tuple(name for name in lost if name not in own)
        if lost:
            raise SplatfixError.of(
                "wheels.torch-symbols-missing",
                details={"member": member, "missing": list(lost[:50])},
                member=member,
                symbols=counted(len(lost), "symbol"),
                torch=torch.version,
                first=lost[0],
            )
    return f"all {counted(sum(map(len, wanted.values())), 'torch symbol')} found in torch {torch.version}"


def prove_found(
    archive: ZipFile, wanted: Wanted, context: Context, torch: Torch, version: str
) -> tuple[str, ...]:
    """Prove that a wheel of an index, with this version in its name, will do for the targets of ``context``.

    Returns what its METADATA says of it and the evidence, a clause each; raised is what speaks against it, or (exit code
    ``UNDETERMINED``) that it cannot be told, and ``BinaryError`` as by :func:`prove_natives`.
    """
    metadata = _prove_metadata(archive, wanted, torch, version)
    faces = _prove_faces(archive, wanted)
    if not native_members(archive):
        if any(name.endswith(".cu") for name in archive.namelist()):
            raise SplatfixError.of("wheels.compiled-at-first-use")
        raise SplatfixError.of("wheels.no-library")
    binaries, shown = prove_natives(archive, context.archs, context)
    if not any(loaded_fatbins(binary.fatbins) for binary in binaries):
        raise SplatfixError.of("wheels.no-gpu-code", files=few([binary.path for binary in binaries]))
    # they link the CUDA runtime of torch's major, which is the one that is loaded
    ours = release(torch.cuda or "")[:1]
    for binary, needed in ((item, name) for item in binaries for name in item.needed):
        runtime = _CUDART.match(needed)
        if runtime and (int(runtime.group(1)),) != ours:
            raise SplatfixError.of(
                "wheels.wrong-cuda", file=binary.path, library=needed, cuda=torch.cuda or "none"
            )
    return (*metadata, *faces, *shown)


def _prove_metadata(archive: ZipFile, wanted: Wanted, torch: Torch, version: str) -> tuple[str, ...]:
    """Prove that it is the distribution and the version that its name says, and asks for this torch."""
    infos = [item for item in archive.infolist() if re.fullmatch(r"[^/]*\.dist-info/METADATA", item.filename)]
    if len(infos) != 1:
        raise BinaryError(f"it has {len(infos)} METADATA where one belongs")
    metadata = HeaderParser().parsestr(_text(archive, infos[0]))
    name, stated = metadata["Name"] or "", metadata["Version"] or ""
    if canonicalize_name(name) != canonicalize_name(wanted.name):
        raise SplatfixError.of("wheels.wrong-name", name=name or "nothing")
    # publishers rename what they built for several torches: then the local part is in the name only
    if Version(Version(stated).public) != Version(Version(version).public):
        raise SplatfixError.of("wheels.other-version-inside", stated=stated, named=version)
    requires = metadata.get_all("Requires-Dist") or ()
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        specifier = requirement.specifier
        if requirement.name == "torch" and not specifier.contains(Version(torch.version), prereleases=True):
            raise SplatfixError.of("wheels.requires-another-torch", specifier=specifier, torch=torch.version)
    return (name, stated, *requires)


def _prove_faces(archive: ZipFile, wanted: Wanted) -> list[str]:
    """Prove that its packages are called as the source, or the variant that was asked for, is called."""
    sources = {}
    for item in archive.infolist():
        module, _, rest = item.filename.partition("/")
        if rest == "__init__.py" and module.isidentifier():
            sources[module] = item

    def face_of(module: str) -> PackageSource:
        try:
            return read_package_source(module, _text(archive, sources[module]))
        except ValueError as error:
            raise SplatfixError.of("wheels.unreadable-face", module=module, error=error) from error

    faces = []
    for expected in wanted.packages:
        if expected.module not in sources:
            raise SplatfixError.of("wheels.no-package", module=expected.module)
        face = face_of(expected.module)
        if difference := face_difference(face, expected):
            raise SplatfixError.of("wheels.wrong-face", difference=difference, source=wanted.source)
        if face.returns != expected.returns:
            raise SplatfixError.of("wheels.unread-returns", module=expected.module)
        faces.append(f"{expected.module} is called as in {wanted.source}")
    if faces:
        return faces
    row = variant(wanted.variant)
    if row and row.module not in sources:
        raise SplatfixError.of("wheels.no-package", module=row.module)
    rasterizers = [module for module in sources if any(row.kind == "rasterizer" for row in variants(module))]
    return [_prove_variant(face_of(module), wanted) for module in rasterizers]


def _prove_variant(face: PackageSource, wanted: Wanted) -> str:
    traits = Traits(face.settings, face.exports or None, face.returns, face.forward, face.classes or None)
    names = " or ".join(best_matches(face.module, traits)) or "none that splatfix knows"
    which = f"its rasterizer is the variant {names}, and returns {returns_of(face) or 'what cannot be read'}"
    row = variant(wanted.variant)
    if row is None:
        raise SplatfixError.of("wheels.variant-not-said", which=which)
    if explain_mismatch(row.key, traits):
        raise SplatfixError.of("wheels.wrong-variant", which=which, key=row.key, returns=row.returns or ())
    if face.returns is None:
        raise SplatfixError.of("wheels.unread-variant", which=which)
    return which


def _text(archive: ZipFile, member: ZipInfo) -> str:
    if member.file_size > MOST_SOURCE:
        raise BinaryError(f"{member.filename} has {member.file_size} bytes: not a real wheel")
    with opened_member(archive, member) as contents:
        return contents.take(0, contents.size, member.filename).decode("utf-8", "replace")


def face_difference(face: PackageSource, expected: PackageSource) -> str:
    """Return in what a package is called otherwise than is expected, as a clause; "" for nothing."""
    for label, have, expect in (
        ("its settings are", face.settings, expected.settings),
        ("its forward takes", face.forward, expected.forward),
    ):
        if have is not None and expect is not None and have != expect:
            missing = [name for name in expect if name not in have] or ["another order"]
            more = [name for name in have if name not in expect] or ["nothing"]
            return f"{label} others: it lacks {', '.join(missing)}, and has {', '.join(more)} besides"
    if (face.settings is None) != (expected.settings is None):
        return "only one of the two has a Settings tuple"
    if face.returns and expected.returns and face.returns != expected.returns:
        return f"it returns {returns_of(face)}, and what it replaces {returns_of(expected)}"
    lost = sorted({*expected.classes} - {*face.classes}) + sorted({*expected.exports} - {*face.exports})
    return f"it lacks {', '.join(lost)}" if lost else ""


def returns_of(face: PackageSource) -> str:
    """Return ``color, radii``, or ``2 values``; "" where it is not read."""
    if face.values:
        return ", ".join(face.values)
    return counted(face.returns, "value") if face.returns else ""
