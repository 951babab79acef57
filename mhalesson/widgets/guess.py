"""The guess before an answer is revealed."""

from html import escape

from ipywidgets import HTML, RadioButtons, VBox

from mhalesson.widgets.instrument import LIVE, show

_CHOSEN: dict[tuple[str, ...], str] = {}  # kept while the kernel lives, also when a cell runs again


class Guess:
    """A question and the `options` to choose from; as the last line of a cell it appears.

    Printed, it is what was chosen. Raises ValueError unless all are different strings, two options at least.

    >>> print(Guess("How many times as long?", "12", "1"))
    none yet
    """

    def __init__(self, question: str, *options: str) -> None:
        key = (question, *options)
        if (
            not all(isinstance(text, str) and text for text in key)
            or len(set(options)) != len(options)
            or len(key) < 3
        ):
            raise ValueError(
                f"{question=} and {options=} should be strings: a question and two or more different answers"
            )
        self.question, self.options = question, options
        self.buttons = RadioButtons(options=options, value=_CHOSEN.get(key))
        self.buttons.observe(lambda change: _CHOSEN.update({key: change.new}), "value")
        asked = HTML(f"<b>My guess: {escape(question)}</b>")
        self.box = VBox([asked, self.buttons, HTML(LIVE)]).add_class("mhalesson-instrument")

    def __str__(self) -> str:
        return self.buttons.value or "none yet"

    def _ipython_display_(self) -> None:
        asked = f"My guess: {self.question}"
        items = "".join(f"<li>{escape(option)}</li>" for option in self.options)
        text = "\n- ".join([f"{asked}\n", *self.options])
        show(self.box, "Run this cell, and you can choose.", f"<p>{escape(asked)}</p><ul>{items}</ul>", text)
