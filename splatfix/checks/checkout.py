"""Checks of a stack's checkout: whether it is complete, fits what is installed, and what its convert.py asks of COLMAP."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from splatfix.checks.calls import alternatives, call_words, fewest, installed_face
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.packages import fingerprint, leaf, variant_names
from splatfix.checks.registry import Check, check
from splatfix.checks.stack import stack_of
from splatfix.context import Context
from splatfix.context.submodules import holds, how_to_fetch, let_splatfix_fetch, module_of, public_address
from splatfix.core.step import Step, run, say
from splatfix.core.versions import release
from splatfix.core.words import few
from splatfix.facts import Checkout, SplatPackage, Submodule
from splatfix.knowledge import stacks
from splatfix.knowledge.breakages import breakage


@check("submodules-missing", family="checkout", title="Submodules of the checkout were fetched")
def submodules_missing(context: Context, this: Check) -> Iterator[Finding]:
    """A plain `git clone`, or the ZIP from GitHub, leaves the folders of submodules empty; pip then finds no setup.py, or
    "does not appear to be a Python project", and imports fail. Named are those that a Python file imports, a build file or a
    list of requirements names, or the stack is known to need; viewers and the like are only mentioned, and so are extensions
    that are installed already. In a clone git fetches them; in an unpacked ZIP each is cloned at the commit that is known to
    belong there. Addresses that need an SSH key are replaced by those over https."""
    found = context.checkout
    if found is None or not found.submodules:
        return
    have = _installed_names(context) or set()
    empty = [item for item in found.submodules if item.empty]
    reasons = {item.path: next(_needed_by(item, found), "") for item in empty}
    needed = [item for item in empty if reasons[item.path] and module_of(item, found) not in have]
    others = [item for item in empty if item not in needed]
    if needed:
        names = [f"{item.path} ({reasons[item.path]})" for item in needed]
        yield this.fail(
            f"Empty in {found.folder}: {'; '.join(names)}.",
            evidence=tuple(_empty_evidence(item) for item in needed),
            remedy=(
                *fetching(context, needed),
                *([let_splatfix_fetch(context.install(found.folder))] if _to_build(needed, found) else []),
            ),
        )
    elif len(others) < len(found.submodules):
        yield this.ok(
            "All submodules that anything needs are there or installed.",
            evidence=Evidence(".gitmodules", ", ".join(item.path for item in found.submodules)),
        )
    if others:
        yield this.skip(
            f"Empty, and not needed: {', '.join(item.path for item in others)}.",
            evidence=tuple(_empty_evidence(item) for item in others),
        )


def _to_build(needed: Sequence[Submodule], found: Checkout) -> bool:
    """``splatfix install`` finds an extension in the checkout, at the latest once these were fetched."""
    return bool(found.sources) or any(
        module_of(item, found) in found.imports or re.search(r"(^|/)submodules/", item.path)
        for item in needed
    )


def _needed_by(item: Submodule, found: Checkout) -> Iterator[str]:
    """What needs a submodule, in words, the surest only."""
    stack = stack_of(found)
    known = stacks.recipe(stack.key) if stack else None
    users = [
        source.source.label
        for source in found.sources
        if any(
            holds(item, posixpath.normpath(posixpath.join(source.path, lost)))
            for lost in source.source.lacking
        )
    ]
    if users:
        yield f"{users[0]} needs it"
    elif known and any(part.path == item.path for part in known.parts):
        yield f"{known.name} needs it"
    elif item.named_in:
        yield f"{item.named_in[0]} needs it"
    elif module_of(item, found) in found.imports or re.search(r"(^|/)submodules/", item.path):
        yield "an extension"


@dataclass(frozen=True)
class Needed:
    """An empty submodule that something needs, with what must be known to fetch it."""

    submodule: Submodule
    """Its path is relative to the checkout."""
    remote: str
    """From which a relative address is seen."""
    commit: str
    """What belongs there; "" where nothing tells."""

    @property
    def address(self) -> str:
        """Where it is fetched from; "" where .gitmodules names nothing at https or ssh."""
        return public_address(self.submodule.url, self.remote)

    @property
    def words(self) -> str:
        """``submodules/simple-knn from https://... at 86710c2d4b``."""
        at = f"at {self.commit[:10]}" if self.commit else "at its newest commit"
        return (
            f"{self.submodule.path} from {self.address or 'an address that .gitmodules does not name'} {at}"
        )


def needed_submodules(found: Checkout) -> tuple[Needed, ...]:
    """The empty submodules of a checkout and of the extensions in it, without those that nothing needs."""
    stack = stack_of(found)
    commits = stack.submodules if stack else {}
    needed = {
        item.path: Needed(item, found.remote, item.recorded or commits.get(item.path, ""))
        for item in found.submodules
        if item.empty and any(_needed_by(item, found))
    }
    for source in found.sources:
        for own in source.source.submodules:
            path = posixpath.normpath(posixpath.join(source.path, own.path))
            needed.setdefault(path, Needed(replace(own, path=path), "", own.recorded or ""))
    return tuple(needed.values())


def _empty_evidence(item: Submodule) -> Evidence:
    commit = f" at {item.recorded[:10]}" if item.recorded else ""
    return Evidence(
        item.path, f"empty; from {item.url or 'nowhere that .gitmodules names'}{commit}", ".gitmodules"
    )


def fetching(context: Context, empty: Sequence[Submodule]) -> tuple[Step, ...]:
    """How these submodules of the checkout are fetched; see :func:`how_to_fetch`."""
    found = context.checkout
    assert found is not None, "its submodules are known"
    stack = stack_of(found)
    clone = found.commit is not None
    return how_to_fetch(
        found.folder, empty, clone=clone, remote=found.remote, commits=stack.submodules if stack else None
    )


@check("glm-missing", family="checkout", title="Headers that the extensions include are there")
def glm_missing(context: Context, this: Check) -> Iterator[Finding]:
    """The rasterizers of Inria's family include glm from a submodule of their own, `third_party/glm`. Without `--recursive`
    it stays empty and the build ends in "glm/glm.hpp: No such file or directory"."""
    found = context.checkout
    for item in found.sources if found else ():
        lost = [
            name
            for name in item.source.missing_folders
            if not _in_empty_submodule(found, posixpath.join(item.path, name))
        ]
        if lost:
            own = [one for one in item.source.submodules if one.path in lost]
            unknown_of = [name for name in lost if name not in {one.path for one in own}]
            restore = say(f"Restore {', '.join(unknown_of)} from the repository that the source is of.")
            yield this.fail(
                f"{item.source.label} lacks {few(lost)}.",
                subject=item.path,
                evidence=Evidence(
                    item.path, "missing or empty: " + ", ".join(lost), "setup.py and .gitmodules"
                ),
                remedy=(
                    *how_to_fetch(item.source.folder, own, clone=item.source.clone),
                    *((restore,) if unknown_of else ()),
                ),
            )


def _in_empty_submodule(found: Checkout | None, path: str) -> bool:
    """submodules-missing tells of it."""
    empty = [item for item in found.submodules if item.empty] if found else []
    return any(holds(item, posixpath.normpath(path)) for item in empty)


@check("source-incomplete", family="checkout", title="Files that setup.py compiles are there")
def source_incomplete(context: Context, this: Check) -> Iterator[Finding]:
    """setup.py names the files that it compiles. Where one of them is missing (an interrupted download, a commit that moved
    it, a file that .gitignore swallowed) the build ends in "No such file or directory" or "no rule to make"."""
    found = context.checkout
    for item in found.sources if found else ():
        lost = [
            name
            for module in item.source.modules
            for name in module.missing
            if not _in_empty_submodule(found, posixpath.join(item.path, name))
        ]
        if lost:
            yield this.fail(
                f"{item.source.label} lacks {few(lost)}.",
                subject=item.path,
                evidence=Evidence(item.path, "named in setup.py, not there: " + ", ".join(lost), "setup.py"),
                remedy="Restore the commit's files with git checkout, or clone again.",
            )


@check(
    "rasterizer-api-mismatch", family="checkout", title="The checkout calls the rasterizer that is installed"
)
def rasterizer_api_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """Each stack calls its own variant of the rasterizer: other settings, other parameters, another number of results. The
    call in the checkout is compared with the installed package's source, both read as syntax trees. A mismatch ends in
    "unexpected keyword argument 'antialiasing'" or "too many values to unpack"."""
    found = context.checkout
    packages = context.environment.packages
    if found is None:
        return
    groups = alternatives(found.calls)
    if groups and packages.value is None:
        yield this.unknown(
            "Which rasterizer is installed is not known.",
            evidence=Evidence("reason", packages.error or "the facts are of an older splatfix"),
        )
        return
    for (file, function, module), calls in groups.items():
        installed = next((item for item in packages.value or () if item.module == module), None)
        if installed is None or installed.settings is None:
            continue  # ext-not-installed tells of the first; of the second nothing is known
        problems = fewest(calls, installed_face(installed))
        evidence = (
            Evidence(f"{file}:{calls[0].line}", call_words(calls[0]), "its syntax tree"),
            Evidence(installed.folder, fingerprint(installed), packages.found_via),
        )
        kind = f"splatfix's drop-in {installed.dropin}" if installed.dropin else ""
        names = kind or " or ".join(variant_names(installed)) or "an unknown variant"
        if problems:
            yield this.fail(
                f"{function}() does not fit the installed {module} ({names}): {'; '.join(problems)}.",
                subject=f"{file}:{function}",
                evidence=evidence,
                remedy=_own_rasterizer(context, found, module),
            )
        else:
            yield this.ok(
                f"{function}() fits the installed {module} ({names}).",
                subject=f"{file}:{function}",
                evidence=evidence,
            )


@check("ext-not-installed", family="checkout", title="Extensions that the checkout imports are installed")
def ext_not_installed(context: Context, this: Check) -> Iterator[Finding]:
    """The checkout's Python files import splatting extensions by name. One that is not in the target environment ends the
    start of training in "No module named ...", unless the import is guarded (see silent-fallback)."""
    found = context.checkout
    have = _installed_names(context)
    if found is None or have is None:
        return
    own = {
        name
        for item in found.sources
        if item.path == "."
        for name in (*item.source.packages, *(module.name for module in item.source.modules))
    }
    if any(item.path == "." for item in found.sources):
        own |= {item.module for item in found.shadows}
    for name in found.imports:
        if name in have or name in own or name.removesuffix("_cuda") in own:
            continue
        yield this.fail(
            f"The checkout imports {name}, which is not installed.",
            subject=name,
            evidence=Evidence(
                "installed",
                ", ".join(sorted(have)) or "no splatting package",
                context.environment.packages.found_via,
            ),
            remedy=_own_rasterizer(context, found, name),
        )


@check("silent-fallback", family="checkout", title="Nothing is replaced by a slow path without a word")
def silent_fallback(context: Context, this: Check) -> Iterator[Finding]:
    """Some stacks wrap the import of fused_ssim or SparseGaussianAdam in a bare `except`. A broken or absent extension is
    then replaced by a slow path, and nothing says so. splatfix looks whether what such an import asks for is there."""
    found = context.checkout
    have = _installed_names(context)
    if found is None or have is None:
        return
    for item in found.guarded:
        module = item.module.partition(".")[0]
        package = next((one for one in context.packages if one.module == module), None)
        evidence = Evidence(
            f"{item.file}:{item.line}", f"import of {item.module} catches {item.catches}", "its syntax tree"
        )
        asked = [name for name in item.names if name[:1].isupper()]
        lacking = [name for name in asked if package and package.classes and name not in package.classes]
        broken = _broken(context, package)
        what = f"{item.file}: {', '.join(item.names) or module}"
        if module not in have and module in found.imports:
            continue  # another file imports it without a guard: ext-not-installed tells
        if module not in have and (stack := _does_without(found, module)):
            yield this.skip(
                f"{what} is not installed; {stack} does not bring it and goes on without it.",
                subject=module,
                evidence=evidence,
            )
        elif module not in have:
            yield this.warn(
                f"{what} is not installed; the code goes on without it, slower.",
                subject=module,
                evidence=evidence,
                remedy=_own_rasterizer(context, found, module),
            )
        elif broken:
            yield this.warn(
                f"{what} is broken ({broken}); the code goes on without it, slower.",
                subject=module,
                evidence=evidence,
                remedy=_own_rasterizer(context, found, module),
            )
        elif lacking:
            yield this.skip(
                f"{what}: the installed variant does not have it; the code goes on without it.",
                subject=module,
                evidence=evidence,
            )
        else:
            yield this.ok(f"{what} is there.", subject=module, evidence=evidence)


def _does_without(found: Checkout, module: str) -> str:
    """The stack's name, where this is another stack's rasterizer, which it neither needs nor brings; "" otherwise."""
    stack = stack_of(found)
    needed = [variant for key in (stack.needs if stack else ()) if (variant := stacks.variant(key))]
    modules = [module.name for item in found.sources for module in item.source.modules]
    brought = {name.partition(".")[0] for item in found.sources for name in item.source.packages}
    brought |= {name.partition(".")[0] for name in modules}
    brought |= {item.path.rpartition("/")[2].replace("-", "_") for item in found.submodules}
    foreign = any(variant.kind == "rasterizer" for variant in stacks.variants(module))
    if stack is None or not foreign or not needed or module in brought | {item.module for item in needed}:
        return ""
    return stack.name


def _own_rasterizer(context: Context, found: Checkout, module: str) -> tuple[Step, ...]:
    """Build the checkout's own copy of an extension; where that is not in it, say what is wanted."""
    for item in found.sources:
        modules = {one.name.partition(".")[0] for one in item.source.modules}
        if module in {*item.source.packages, *modules, (item.source.name or "").replace("-", "_")}:
            return (
                say("Build the checkout's own, in an environment of its own:"),
                context.install(item.source.folder),
            )
    if empty := [item for item in found.submodules if item.empty and module_of(item, found) == module]:
        return (*fetching(context, empty), context.install(f"{found.folder}/{empty[0].path}"))
    stack = stack_of(found)
    known = stacks.recipe(stack.key) if stack else None
    for part in known.parts if known else ():
        row = stacks.variant(part.variant)
        if part.install and module == (row.module if row else part.install.partition("==")[0]):
            return bringing(context, part.clone, part.install)
    named = stacks.lookalike(module)
    for address in (*found.clones, *([named.wanted] if named else [])):
        name = address.rstrip("/").rpartition("/")[2].removesuffix(".git")
        if "://" in address and name.replace("-", "_") == module:
            return bringing(context, address.removeprefix("git+"), f"./{name}")
    return (say(f"Install {module} as the README of the checkout says, with --no-build-isolation."),)


def bringing(context: Context, address: str, source: str) -> tuple[Step, ...]:
    """Clone what is in no folder of the checkout ("": nothing to clone), and install it."""
    clone = (run("git", "clone", "--recursive", address),) if address else ()
    return (*clone, context.install(source))


def _installed_names(context: Context) -> set[str] | None:
    """Modules of splatting packages in the environment; None when that is not known."""
    packages = context.environment.packages.value
    extensions = context.environment.extensions.value
    if packages is None or extensions is None:
        return None
    loose = {re.split(r"[./]", item.path)[0] for item in extensions if item.importable}
    return {item.module.partition(".")[0] for item in packages} | loose


def _broken(context: Context, package: SplatPackage | None) -> str:
    """Why importing an installed package fails, as far as other checks found; "" for nothing known."""
    if package is None:
        return ""
    if package.native_missing:
        return f"no {', '.join(package.native_missing)}"
    for item in context.extensions:
        of_package = item.distribution in package.distributions or item.path.startswith(f"{leaf(package)}/")
        if (
            of_package
            and item.linkage
            and (item.linkage.torch_missing or item.linkage.own_missing or item.linkage.unresolved)
        ):
            return "its compiled part does not load"
    return ""


@check("colmap-missing", family="checkout", title="COLMAP is here for photographs of one's own")
def colmap_missing(context: Context, this: Check) -> Iterator[Finding]:
    """convert.py calls `colmap`; without it "Feature extraction failed with code 1" (127 on Linux). Downloaded scenes need no
    COLMAP, so its absence is only named. Another place is given by --colmap_executable."""
    found, fact = context.checkout, context.machine.colmap
    if found is None or not _calls_colmap(found) or not fact.found_via:
        return
    if fact.absent:
        yield this.skip(
            "convert.py calls COLMAP, which is not on PATH; downloaded scenes do not need it.",
            evidence=Evidence("colmap", "not there", fact.found_via),
            remedy="For photographs of your own: install COLMAP, or give convert.py --colmap_executable PATH.",
        )
    elif fact.value is not None:
        yield this.ok(
            f"COLMAP {fact.value.version} is on PATH.",
            evidence=Evidence("colmap", fact.value.version, fact.found_via),
        )


@check("colmap-option-mismatch", family="checkout", title="convert.py uses options that this COLMAP has")
def colmap_option_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """COLMAP 3.13 renamed --SiftExtraction.use_gpu to --FeatureExtraction.use_gpu (and matching likewise) and dropped the old
    names: "Failed to parse options - unrecognised option '--SiftExtraction.use_gpu'". convert.py of Inria's family uses the
    old ones. Source: colmap PR#3465, gaussian-splatting#1255 and #1308, nerfstudio PR#3781."""
    found, colmap = context.checkout, context.machine.colmap.value
    known = breakage("colmap-options")
    if found is None or colmap is None or not found.colmap_options:
        return
    version = release(colmap.version)[:2]
    old = [name for name in found.colmap_options if name.startswith("Sift")]
    new = [name for name in found.colmap_options if name.startswith("Feature")]
    renamed = known.when.holds({"colmap": version})
    wrong = old if renamed and not new else new if not renamed and not old else []
    if wrong:
        yield this.warn(
            f"convert.py gives COLMAP --{wrong[0]}, which COLMAP {colmap.version} does not have.",
            evidence=(
                Evidence("convert.py", " ".join(f"--{name}" for name in found.colmap_options), "its text"),
                Evidence("colmap", colmap.version, context.machine.colmap.found_via),
            ),
            remedy=f"In convert.py: {known.cure}.",
        )


@check("colmap-no-gpu", family="checkout", title="COLMAP was built with CUDA")
def colmap_no_gpu(context: Context, this: Check) -> Iterator[Finding]:
    """convert.py asks for SIFT on the GPU. A COLMAP without CUDA (Debian's and Ubuntu's package) falls back to OpenGL, which
    needs a screen: over ssh or in a container it ends in "could not connect to display". With --no_gpu it runs anywhere."""
    found, fact = context.checkout, context.machine.colmap
    if found is None or not _calls_colmap(found) or fact.value is None or fact.value.cuda is not False:
        return
    yield this.skip(
        f"COLMAP {fact.value.version} was built without CUDA: give convert.py --no_gpu where there "
        "is no screen.",
        evidence=Evidence("colmap", "without CUDA", fact.found_via),
        remedy="python convert.py -s DATA --no_gpu, or a COLMAP built with CUDA (conda-forge has one).",
    )


def _calls_colmap(found: Checkout) -> bool:
    return "convert.py" in found.paths or bool(found.colmap_options)
