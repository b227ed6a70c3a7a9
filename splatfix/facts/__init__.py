"""What is true of a machine, of one Python environment and of a checkout: frozen structs and the probes that fill them.

Other rooms import from here alone; what is imported here is the room's face.
"""

from splatfix.binaries import Binary, EntryKind, Fatbin, NativeFiles, read_files
from splatfix.facts.collect import gather, load
from splatfix.facts.environment.installer import find_installer
from splatfix.facts.environment.interpreter import choose_python, refuse_other_program
from splatfix.facts.environment.linkage import of_torch, torch_libraries
from splatfix.facts.environment.packages import name_and_version, origin_folder, read_distributions, record_of
from splatfix.facts.environment.records import RecordedFile, recorded_files
from splatfix.facts.machine.adapters import same_bus
from splatfix.facts.machine.toolkits import lending_folders
from splatfix.facts.source.build_variables import is_arch_variable
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
    resolved_folder,
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
from splatfix.facts.source.reached import Reach, all_trainers, as_reached, find_trainers
from splatfix.facts.source.scripts import compiled_at_first_use, read_arguments, read_scripts
from splatfix.facts.system.live import LiveSystem, System
