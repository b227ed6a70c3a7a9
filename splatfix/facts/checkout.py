"""What is true of a checkout: the readers of ``splatfix.facts.source`` that other rooms call.

A machine and an environment are looked at without it: its parsers and patterns are a tenth of a diagnosis.
"""

from splatfix.facts.source.checkout import missing_headers_of, read_checkout, read_identity, with_checkout
from splatfix.facts.source.extension import MOST_FOLDERS, read_source, walk_extensions
from splatfix.facts.source.folder import (
    as_typed,
    checkout_around,
    has_build_file,
    holds_everything,
    is_clone,
    is_file,
    packages_in,
    packed_sources,
    photos_alone,
    read_package,
    source_texts,
    subfolders,
    telling_paths,
    trainer_around,
)
from splatfix.facts.source.git_files import (
    commit_of,
    git_folder,
    has_nothing_below,
    is_empty,
    read_submodules,
    remote_of,
)
from splatfix.facts.source.pins import read_pins
from splatfix.facts.source.python_source import read_package_source
from splatfix.facts.source.reach import repository_of
from splatfix.facts.source.scripts import (
    as_reached,
    compiled_at_first_use,
    find_trainers,
    read_arguments,
    read_scripts,
)
