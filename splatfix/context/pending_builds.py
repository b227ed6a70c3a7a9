"""What of a source is installed already, what is still to be built, and what compiles at its first import."""

import re
from collections.abc import Collection
from functools import cached_property

from packaging.utils import canonicalize_name

from splatfix.context.toolchain import Toolchain
from splatfix.core.versions import release
from splatfix.facts import origin_folder
from splatfix.model import CheckoutSource, Extension, Facts, Source

_CUDA_IN_NAME = re.compile(r"(?<=[_.-])cu(?:da)?(\d{2})(\d)(?=[_.-])")


class PendingBuilds(Toolchain, frozen=True, dict=True):
    """The layer of the context that knows what was built, and what is going to be."""

    @cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """Native modules of installed packages, without those that this torch never loads: a wheel may bring one module for
        each CUDA (``_cuda_cu118``, ``_cuda_cu124``...), of which its package takes the one of torch's CUDA. Where there is
        none, it tries them in order, and the first of torch's CUDA major is the first whose runtime is found. Source: fussim
        0.3.15's loader."""
        extensions = self.environment.extensions.value or ()
        rows: dict[tuple[str, str], dict[tuple[int, int], Extension]] = {}
        for item in extensions:
            match = _CUDA_IN_NAME.search(item.path)
            if match:
                name = item.folder + _CUDA_IN_NAME.sub("*", item.path)
                row = rows.setdefault((item.distribution or "", name), {})
                row[int(match[1]), int(match[2])] = item
        cuda = self.torch_cuda
        never_loaded: list[Extension] = []
        for row in rows.values():
            same_major = [key for key in row if cuda and key[0] == cuda[0]]
            loaded = min(same_major, default=max(row))
            if cuda is not None and cuda in row:
                loaded = cuda
            never_loaded += [item for key, item in row.items() if key != loaded]
        return tuple(item for item in extensions if item not in never_loaded)

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """Distributions that bring an extension which links torch, without torch's own family."""
        names: dict[str, None] = {}
        for item in self.extensions:
            name = item.distribution or ""
            if item.links_torch and item.importable and not item.optional and name:
                names[name] = None
        return tuple(name for name in names if not name.lower().startswith("torch"))

    @cached_property
    def sources_not_built(self) -> tuple[CheckoutSource, ...]:
        """Sources of the checkout that are still to be built: where what they build is installed, the build went well."""
        pending = []
        for item in self.sources:
            files = files_installed(self.facts, names_built(item.source), item.source.folder)
            if not any(file.importable for file in files):
                pending.append(item)
        return tuple(pending)

    @cached_property
    def sources_to_build(self) -> tuple[CheckoutSource, ...]:
        """Those of them with CUDA code."""
        return tuple(item for item in self.sources_not_built if item.source.needs_cuda)

    @cached_property
    def compiles_at_first_use(self) -> tuple[str, ...]:
        """Installed packages that will compile CUDA code at their first import: gsplat's plain wheel, older nvdiffrast."""
        extensions = self.environment.extensions.value
        if extensions is None:
            return ()
        compiled = {re.split(r"[./]", item.path)[0] for item in extensions}
        for cache in self.jit_caches:
            if cache.library:
                compiled.add(cache.name.partition("_")[0])
        compiled |= {item.dropin for item in self.distributions if item.dropin}
        names = []
        for item in self.distributions:
            name = item.name.lower()
            # nvdiffrast is compiled by pip from 0.4 on
            by_itself = name == "gsplat" or (name == "nvdiffrast" and release(item.version)[:2] < (0, 4))
            if by_itself and name not in compiled:
                names.append(name)
        return tuple(names)

    @property
    def builds_ahead(self) -> tuple[str, ...]:
        """What is going to be compiled in this environment, as far as the facts tell; () for nothing known."""
        return (*(item.source.label for item in self.sources_to_build), *self.compiles_at_first_use)

    @property
    def made_to_run(self) -> bool:
        """Splatting extensions are here, compiled, and nothing else is to be built, as in a finished image."""
        compiled = any(item.native and not item.native_missing and not item.error for item in self.packages)
        return compiled and not self.builds_ahead and self.checkout is None


def names_built(source: Source) -> frozenset[str]:
    """Return the normalised names under which what a source builds is found again: its distribution's, and what is imported."""
    names = {source.label}
    names |= {name.partition(".")[0] for name in (*source.packages, *source.modules)}
    return frozenset(canonicalize_name(name) for name in names if name)


def distributions_of(facts: Facts, names: Collection[str], folder: str = "") -> tuple[str, ...]:
    """Installed distributions of these normalised names, or that were installed from this folder."""
    owners = []
    for item in facts.environment.distributions.value or ():
        origins = [origin_folder(item)]
        # splatfix builds from a copy; its manifest says of what
        if item.built is not None:
            origins.append(item.built.source)
        if canonicalize_name(item.name) in names or (folder and folder in origins):
            owners.append(item.name)
    return tuple(owners)


def files_installed(facts: Facts, names: Collection[str], folder: str = "") -> tuple[Extension, ...]:
    """Native files of what was built under these normalised names, or from this folder."""
    owners = distributions_of(facts, names, folder)
    files = []
    for item in facts.environment.extensions.value or ():
        if item.distribution in owners or canonicalize_name(item.module.partition(".")[0]) in names:
            files.append(item)
    return tuple(files)
