"""The guess before an answer is revealed."""

from ipywidgets import HTML, RadioButtons, VBox

from mhalesson.widgets.instrument import LIVE, show

_CHOSEN: dict[tuple[str, ...], str] = {}  # kept while the kernel lives, also when a cell runs again


class Guess:
    """A guess, to be chosen from `options`; as the last line of a cell it appears. Printed, it is the choice.

    >>> print(Guess("12", "1"))
    none yet
    """

    def __init__(self, *options: str) -> None:
        self.options = options
        self.buttons = RadioButtons(options=options, value=_CHOSEN.get(options))
        self.buttons.observe(lambda change: _CHOSEN.update({options: change.new}), "value")
        question = HTML("<b>My guess</b>")
        self.box = VBox([question, self.buttons, HTML(LIVE)]).add_class("mhalesson-instrument")

    def __str__(self) -> str:
        return self.buttons.value or "none yet"

    def _ipython_display_(self) -> None:
        items = "\n".join(f"- {option}" for option in self.options)
        show(self.box, "Run this cell, and you can choose.", f"**My guess**, one of\n\n{items}", items)
