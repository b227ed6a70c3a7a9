"""What splatfix knows and says, as data: frozen structs that go to JSON and back. No judgement, no reading.

Here are the facts and what is found of them; what is planned is in ``option`` and ``steps``.
"""

from splatfix.model.environment import (
    AlteredFile,
    BuildRecord,
    Distribution,
    EnvironmentFacts,
    Extension,
    ImportProbe,
    Installer,
    Interpreter,
    JitCache,
    Linkage,
    RuntimeCopy,
    RuntimeLibrary,
    SplatPackage,
    ToolkitChoice,
    Torch,
)
from splatfix.model.fact import (
    Code,
    Fact,
    FatbinGroup,
    absent,
    group_fatbins,
    loaded_fatbins,
    unknown,
    version_or_none,
)
from splatfix.model.facts import SCHEMA_VERSION, Facts
from splatfix.model.finding import Considered, Evidence, Finding, Status
from splatfix.model.machine import (
    Adapter,
    Colmap,
    Compiler,
    Confinement,
    CudaDevice,
    Disk,
    Driver,
    Gpu,
    HeaderCopy,
    MachineFacts,
    Resources,
    Toolkit,
    Xid,
)
from splatfix.model.source import (
    ArchVariable,
    Checkout,
    CheckoutSource,
    CodeMatch,
    CudaSwitches,
    ExtensionCall,
    GuardedImport,
    ImportedModule,
    MissingHeader,
    PackageSource,
    Pin,
    RenderCall,
    Shadow,
    Source,
    Submodule,
)
