"""What the depth map of a rasterizer is and how it projects, by its CUDA source."""

import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WRITTEN = re.compile(r"\b(?!collected)\w*depth\w*\s*\[[^\]\n]*\]\s*=\s*([^;=]+);", re.IGNORECASE)
_PROJECTION = re.compile(r"(compute\w*Cov2D\w*)\([^;{}()]*\)\{(.*?)(?=__device__|__global__|$)", re.DOTALL)
_WEIGHT = re.compile(r"\b(\w+)\s*=\s*alpha\s*\*\s*T\s*;")


def read_projection(text: str) -> str:
    """Name the function of ``forward.cu`` that lacks the Jacobian of a perspective projection; "" for none."""
    functions = _PROJECTION.findall("".join(_COMMENT.sub("", text).split()))
    others = [name for name, body in functions if "focal_x/t.z" not in body or "(t.z*t.z)" not in body]
    return others[0] if others else ""


def read_depth(text: str) -> str:
    """Say ``sum`` where the map that ``forward.cu`` writes adds up depth times alpha T, as most forks do; where it is something
    else (the median, a mean, inverse depth) the statement that makes it; "" where no map is written.

    Args:
        text: of ``cuda_rasterizer/forward.cu``; "" where it is not there.
    """
    start = text.find("renderCUDA(")
    if start < 0:
        return ""
    text = _COMMENT.sub("", text[start:])
    kinds = {}
    for match in _WRITTEN.finditer(text):
        value = match.group(1).strip()
        if not value.isidentifier():
            kinds[" ".join(match.group().split())] = False
            continue
        statements = re.findall(rf"\b{value}\s*(\+?=)\s*([^;]+);", text)
        added = [right for sign, right in statements if sign == "+="]
        # beside the zero it begins with nothing else is put into it
        others = [
            right
            for sign, right in statements
            if sign == "=" and right.strip(" {}") not in ("0", "0.0f", "0.f")
        ]
        weights = {"alpha*T", *_WEIGHT.findall(text)}
        factors = ["".join(right.split()) for right in added]
        # a depth times alpha T, not its inverse
        sums = bool(added) and all(
            "/" not in text and any(text.endswith(f"*{weight}") for weight in weights) for text in factors
        )
        first = next((f"{value} = {' '.join(right.split())};" for right in others), f"{value} += ...;")
        kinds[first] = sums and not others
    if not kinds:
        return ""
    return next((statement for statement, sums in kinds.items() if not sums), "sum")
