"""Pictures as SVG: boxes, lines and words. The browser draws them, faster than a PNG can be made and sent."""

import base64
from xml.etree.ElementTree import Element, SubElement, tostring

from mhalesson.figures import TINTS

Pixels = int | float
WIDTH = 640
INK, PALE = "#111111", "#595959"  # both can be read on white, the second for what is less important
# Stripes over the first tints, so that no head is told by its colour alone: width and gap of those that
# stand, and of those that lie. (SVG's own patterns need names, and a name holds for a whole page.)
STRIPES = (("", ""), ("1 4", ""), ("", "1 4"))


class Drawing:
    """A white sheet, `WIDTH` wide. Lengths are in pixels, y points down, and what comes later lies on top."""

    def __init__(self, title: str, height: int) -> None:
        self.root = Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
        self.root.set("viewBox", f"0 0 {WIDTH} {height}")
        self.root.set("aria-label", title)
        self.root.set("font-family", "sans-serif")
        self.root.set("style", f"width: 100%; max-width: {WIDTH * 1.1:.0f}px; background: white")
        self._add("rect", width=WIDTH, height=height, fill="white")

    def _add(self, tag: str, **attributes: object) -> Element:
        written = {
            name.replace("_", "-"): f"{value:.1f}" if isinstance(value, float) else str(value)
            for name, value in attributes.items()
        }
        return SubElement(self.root, tag, written)

    def box(
        self, x: Pixels, y: Pixels, width: Pixels, height: Pixels, fill: str = "white", line: Pixels = 1.0
    ) -> None:
        self._add("rect", x=x, y=y, width=width, height=height, fill=fill, stroke=INK, stroke_width=line)

    def striped_box(self, x: Pixels, y: Pixels, width: Pixels, height: Pixels, head: int) -> None:
        """A box in the tint of a head, with its stripes: dashes of lines as broad as the box."""
        self.box(x, y, width, height, fill=TINTS[head])
        upright, lying = STRIPES[head]
        if upright:
            across = f"M{x:.1f} {y + height / 2:.1f}h{width:.1f}"
            self._add("path", d=across, stroke=INK, stroke_width=height, stroke_dasharray=upright)
        if lying:
            down = f"M{x + width / 2:.1f} {y:.1f}v{height:.1f}"
            self._add("path", d=down, stroke=INK, stroke_width=width, stroke_dasharray=lying)

    def dashed_box(self, x: Pixels, y: Pixels, width: Pixels, height: Pixels) -> None:
        dashes = dict(stroke=INK, stroke_width=1.5, stroke_dasharray="4 3")
        self._add("rect", x=x, y=y, width=width, height=height, fill="none", **dashes)

    def diamond(self, x: Pixels, y: Pixels, half: Pixels) -> None:
        corners = ((x, y - half), (x + half, y), (x, y + half), (x - half, y))
        self._add("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in corners), fill=INK)

    def line(
        self,
        x1: Pixels,
        y1: Pixels,
        x2: Pixels,
        y2: Pixels,
        colour: str = INK,
        width: Pixels = 1.0,
    ) -> None:
        ends = dict(x1=x1, y1=y1, x2=x2, y2=y2)
        self._add("line", **ends, stroke=colour, stroke_width=width)

    def words(
        self,
        x: Pixels,
        y: Pixels,
        text: str,
        anchor: str = "middle",
        size: int = 14,
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        """Words whose line stands on y; `anchor` says which part of them is at x: start, middle or end."""
        weight = "bold" if bold else "normal"
        place = dict(x=x, y=y, text_anchor=anchor, font_size=size, fill=colour, font_weight=weight)
        self._add("text", **place).text = text

    def svg(self) -> str:
        return tostring(self.root, encoding="unicode")


def percent(share: int | float) -> str:
    """A share as a whole percentage that is 0 or 100 only where it really is."""
    if 0 < share < 0.005:
        return "under 1 %"
    return "over 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def as_address(svg: str) -> str:
    """The picture as an address, which can be shown where a page is not trusted with SVG."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
