"""The shell of every instrument: controls, and below them a picture and a caption that follow.

What is drawn comes from a plain function of the controls' values, `render(**values) -> View`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import ipywidgets
from IPython.display import display
from torch import Tensor

from mhalesson.widgets.drawing import as_address

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# What ipywidgets leaves out: the caption is read out when it changes (a live region), every slider says its
# name, and JupyterLab keeps its shortcuts to itself (an arrow key would go to another cell).
# A script in an HTML widget does not run; the handler of an image that cannot be loaded does.
LIVE = """
<style>
.mhalesson-instrument .mhalesson-picture { overflow-x: auto; }
.mhalesson-instrument svg { min-width: 480px; }
.mhalesson-instrument .mhalesson-caption { min-height: 4.5em; max-width: 700px; }
.mhalesson-instrument .widget-html-content { line-height: 1.4; }
.mhalesson-instrument .widget-label { width: 130px; }
.mhalesson-instrument .widget-dropdown, .mhalesson-instrument .widget-slider {
  width: min(420px, 95%); height: auto; flex-wrap: wrap;
}
.mhalesson-instrument .slider-container { min-width: 120px; }
.mhalesson-instrument .widget-label:has(+ .widget-html-content) { display: none; }
.mhalesson-instrument .widget-radio-box label { width: auto; white-space: normal; line-height: 1.4; }
.mhalesson-instrument .widget-radio { width: auto; }
.mhalesson-instrument ol { margin: 0; max-width: 700px; }
.mhalesson-desk { grid-template-columns: repeat(4, 120px); overflow-x: auto; }
.mhalesson-desk .widget-text { width: 116px; }
.mhalesson-desk .widget-label { width: 45px; }
</style>
<img src="data:," alt="" hidden onerror="
  const start = (image) => {
  const instrument = image.closest('.mhalesson-instrument');
  if (!instrument) return setTimeout(start, 50, image);  // after a reload, not in the page yet
  const all = (css) => [...instrument.querySelectorAll(css)];
  const group = 'mhalesson-' + Math.random();
  const set = (name, value) => (element) => element.setAttribute(name, value);
  const complete = () => {
    all('.mhalesson-caption .widget-html-content').forEach(set('aria-live', 'polite'));
    all('select, input, button, [role=slider]').forEach(set('data-lm-suppress-shortcuts', 'true'));
    for (const handle of all('.widget-slider [role=slider]'))
      set('aria-label', handle.closest('.widget-slider').querySelector('label').textContent)(handle);
    all('.widget-radio-box').forEach(set('role', 'radiogroup'));
    all('.widget-radio-box input').forEach(set('name', group));
    all('b').slice(0, 1).forEach((asked) =>
      all('.widget-radio-box').forEach(set('aria-label', asked.textContent)));
  };
  new MutationObserver(complete).observe(instrument, {childList: true, subtree: true});
  complete();
  };
  start(this);
">
"""

# Of the live instrument and what is stored for readers without a kernel, one is shown. When the kernel is
# gone, what stands for the first is a message of ipywidgets that it found no model. (A page that is not
# trusted has its plain words there, and drops this style.)
STATIC = """
<style>
.jp-OutputArea-child:has(.mhalesson-instrument) + .jp-OutputArea-child:has(.mhalesson-static),
.jp-OutputArea-child:has(> .jp-OutputArea-output.jupyter-widgets):has(+ * .mhalesson-static) {
  display: none;
}
</style>
"""


@dataclass(frozen=True)
class View:
    """What an instrument shows for some values of its controls."""

    title: str
    svg: str
    caption: str


class Instrument:
    """Controls and what they show; as the last line of a cell it appears.

    `try_this` are the steps that the learner is invited to take. A page without a kernel shows the picture
    and the caption of the values that the controls have when it is shown. `layout` holds the controls, one
    below the other by default.
    """

    def __init__(
        self,
        render: Callable[..., View],
        controls: Mapping[str, ipywidgets.ValueWidget],
        try_this: Sequence[str],
        layout: ipywidgets.Widget | None = None,
    ) -> None:
        self.render, self.controls = render, controls
        self.picture = ipywidgets.HTML().add_class("mhalesson-picture")
        self.caption = ipywidgets.HTML().add_class("mhalesson-caption")
        self.paused = False
        for control in controls.values():
            control.tooltip = control.description  # ipywidgets would write "null"
            control.observe(self._redraw, "value")
        self._redraw()
        steps = "".join(f"<li>{escape(step)}</li>" for step in try_this)
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HTML(f"<b>Try this</b><ol>{steps}</ol>"),
                layout or ipywidgets.VBox(list(controls.values())),
                self.picture,
                self.caption,
                ipywidgets.HTML(LIVE),
            ]
        ).add_class("mhalesson-instrument")

    def values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    def _redraw(self, _change: object = None) -> None:
        if self.paused:
            return
        values = self.values()
        try:
            view = self.render(**values)
        except Exception as error:  # JupyterLab would hide it in a log
            given = ", ".join(f"{name} = {value}" for name, value in values.items())
            view = View("", "", f"No picture for {given}. {type(error).__name__}: {error}")
        self.view, self.picture.value, self.caption.value = view, view.svg, escape(view.caption)

    @contextmanager
    def at_once(self):
        """Several controls are set, and the picture is drawn once."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False
            self._redraw()

    def _ipython_display_(self) -> None:
        title, caption = escape(self.view.title), escape(self.view.caption)
        html = f'<img alt="{title}" src="{as_address(self.view.svg)}"><p><em>{caption}</em></p>'
        show(self.box, "Run this cell, and you can move what follows.", html, self.view.caption)


def own_copy(tensor: Tensor) -> Tensor:
    """Of what an instrument was given: in double precision, and where it can be drawn."""
    return tensor.detach().cpu().double().clone()


def show(box: ipywidgets.Widget, invitation: str, html: str, plain: str) -> None:
    """A live widget, and after it what a page without a kernel shows in its place."""
    live = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    display({WIDGET_VIEW: live, "text/plain": invitation}, raw=True)
    static = f'{STATIC}<div class="mhalesson-static">{html}</div>'
    display({"text/html": static, "text/plain": plain}, raw=True)
