"""What is true of a machine and of one Python environment: frozen structs and the probes that fill them.

Other rooms import from here, and of a checkout from ``splatfix.facts.checkout``; what these import is the room's face.
"""

from splatfix.binaries import Binary, EntryKind, Fatbin, NativeFiles, read_files
from splatfix.facts.collect import gather, load
from splatfix.facts.environment.installer import find_installer
from splatfix.facts.environment.interpreter import choose_python, refuse_other_program
from splatfix.facts.environment.linkage import of_torch, torch_libraries
from splatfix.facts.environment.packages import (
    RecordedFile,
    name_and_version,
    origin_folder,
    read_distributions,
    record_of,
    recorded_files,
)
from splatfix.facts.machine.adapters import same_bus
from splatfix.facts.source.variable_names import is_arch_variable
from splatfix.facts.system.live import System
