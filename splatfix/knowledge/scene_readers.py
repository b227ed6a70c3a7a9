"""What the loaders of trainers take of a scene's folder, and how they refuse the rest."""

from collections.abc import Mapping

from msgspec import Struct

from splatfix.knowledge.rows import rows
from splatfix.knowledge.tables import cached


class SceneReader(Struct, frozen=True):
    """The loader of one trainer, or of several that share it."""

    name: str
    stacks: tuple[str, ...]
    source_files: str
    """The files that were read, with their commit."""
    layouts: tuple[str, ...]
    """As :class:`splatfix.facts.scene.model.Scene` names them."""
    folders: tuple[str, ...]
    """Where it looks for a COLMAP model."""
    models: tuple[str, ...]
    """COLMAP's camera models that it takes."""
    says: Mapping[str, str]
    """Its words by fault."""
    folder_option: str = ""
    """That names another folder of the model."""
    images_option: str = ""
    """That names another folder of the photos."""
    images_by_divisor: bool = False
    """That option takes the divisor of the folder's copies, as ``4`` of ``images_4``."""
    photos_as_stated: bool = False
    """A photo must have exactly the size that its camera states; the other loaders train on with a scaled camera."""
    by_name_alone: bool = False
    """It drops the folders of a photo's name."""
    one_model: bool = False
    """All cameras must have the same model."""
    opens_test_file: bool = False
    """``transforms_test.json`` of a Blender scene."""
    adds_png: bool = False
    """To every path of a Blender scene, also to one that has an ending."""
    needs_angle: bool = False
    """``camera_angle_x`` of a Blender scene."""
    needs_points: bool = False
    """Also of a nerfstudio scene."""
    copies: int = 0
    """The divisor of the copies that it reads unless told otherwise; 0: the photos."""
    copies_option: str = ""
    """That makes it read the photos."""


@cached
def scene_readers() -> Mapping[str, SceneReader]:
    """All rows of the table."""
    return rows(SceneReader, "scene_readers", "readers")
