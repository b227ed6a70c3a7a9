"""``splatfix fleet manifest``: the gate for Kubernetes, and for node-problem-detector."""

import re

import splatfix
from splatfix.app.result import Result
from splatfix.core.errors import SplatfixError
from splatfix.report.templates import jinja

GATE = "python -m splatfix gate --for=kubernetes"
# names of images and of what Kubernetes holds; anything else could be markup of YAML
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,300}")


def manifest(kind: str, image: str = "", *, gpus: int | None = None, claim: str = "") -> Result:
    """The manifest.

    Args:
        kind: ``job``, ``daemonset`` or ``init``; ``npd`` for node-problem-detector, which needs no image.
        image: with splatfix in its environment, such as that of a lane.
        gpus: that the container asks for; by default 1, and 0 of a DaemonSet, which looks at all and takes none.
        claim: a PersistentVolumeClaim for the verdicts.

    Raises:
        SplatfixError: ``no-image`` or ``bad-name`` (exit code 2).
    """
    template = "kubernetes.yaml"
    if kind == "npd":
        template = "npd.json"
    elif not image:
        raise SplatfixError.of("app.no-image", kind=kind)
    for name in filter(None, (image, claim)):
        if not _NAME.fullmatch(name):
            raise SplatfixError.of("app.bad-name", name=name)
    if gpus is None:
        gpus = 0 if kind == "daemonset" else 1
    # of the init container's Job: a training is no gate
    own = "training" if kind == "init" else "splatfix-gate"
    values = {"kind": kind, "name": own, "image": image, "gpus": gpus, "claim": claim, "gate": GATE}
    # not a page: nothing is escaped, and every value was checked above
    text = jinja().get_template(template).render(version=splatfix.__version__, **values)
    return Result(
        "fleet manifest",
        lambda: {"kind": kind, "manifest": text},
        lambda console: console.print(text.rstrip("\n"), markup=False, highlight=False, soft_wrap=True),
    )
