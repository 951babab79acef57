"""The pages in a real JupyterLab, in a real browser: they open, run, can be moved, and are there again later.

`make browser` runs this alone, with the Chromium (or Chrome) of this machine. Screenshots and the table of
times are left in `.browser/`.
"""

import os
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

import ipywidgets
import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from make_notebooks import KERNELSPEC, NOTEBOOKS
from playwright.sync_api import expect, sync_playwright
from test_widgets import MERGES, NAMES, PAIR, RUNS, TOY, TRAINED, W_O, WAYS, Z

from mhalesson.widgets import (
    mixing_desk,
    step_through,
    trained_desk,
    two_reports_one_sum,
    where_the_loop_hurts,
    who_reaches_whom,
)
from mhalesson.widgets.instrument import WIDGET_VIEW

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
REPORT = ROOT / ".browser"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MOVES, PRESSES = 10, 20
expect.set_options(timeout=20_000)  # milliseconds, as long as a busy machine may take
each_page = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])

# What the pages hand to their instruments, by the id of the cell.
LAYERS = {"the layer above": (TOY, 4)}
LAYERS |= {f"MiniLM, layer {n}": (layer.W_O, 12) for n, layer in enumerate(TRAINED.layers)}
PAGE_WAYS = dict(
    zip(
        ("halves of their own, 4 wide", "one shared half, 4 wide", "halves of their own, 2 wide"),
        WAYS.values(),
        strict=True,
    )
)
PAGE_MERGES = dict(
    zip(("right", "transpose forgotten", "contiguous forgotten"), MERGES.values(), strict=True)
)
INSTRUMENTS = {
    "who-reaches-whom-live": lambda: who_reaches_whom(LAYERS),
    "two-reports-live": lambda: two_reports_one_sum(PAIR, PAGE_WAYS),
    "mixing-desk-live": lambda: mixing_desk(W_O, PAIR),
    "trained-desk-live": lambda: trained_desk(TRAINED),
    "step-through-live": lambda: step_through(Z, NAMES, PAGE_MERGES),
    "loop-hurts-live": lambda: where_the_loop_hurts(RUNS),
}
ON_PAGE = {
    path.stem: [cell.id for cell in nbformat.read(path, as_version=4).cells if cell.id in INSTRUMENTS]
    for path in NOTEBOOKS
}
assert sorted(cell for cells in ON_PAGE.values() for cell in cells) == sorted(INSTRUMENTS)


# ------------------------------------------------------------------------------------- the machinery


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab of its own, on loopback with a token and nobody's settings, and copies of the pages."""
    home = tmp_path_factory.mktemp("lab")
    shutil.copytree(
        ROOT / "notebooks", home / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints")
    )
    news = home / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTERLAB_SETTINGS_DIR": "settings", "IPYTHONDIR": "ipython"}
    folders |= {"JUPYTERLAB_WORKSPACES_DIR": "workspaces", "JUPYTER_RUNTIME_DIR": "runtime"}
    folders |= {"JUPYTER_DATA_DIR": "data"}  # with the signatures of the pages that are trusted
    environment = os.environ | {name: str(home / folder) for name, folder in folders.items()}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    command += ["--LabApp.expose_app_in_browser=True"]  # for the menu entries that a test cannot click
    command += ["--KernelManager.shutdown_wait_time=0.2"]  # nothing here depends on how a kernel ends
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    log = (home / "log.txt").open("w")
    server = subprocess.Popen(command, cwd=home / "notebooks", env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{address}/api?token={token}", timeout=5)
                break
            except OSError:
                assert server.poll() is None, (home / "log.txt").read_text()
                time.sleep(0.5)
        else:
            pytest.fail(f"JupyterLab does not answer: {(home / 'log.txt').read_text()}")
        yield Lab(address, token, home / "notebooks")
    finally:
        server.terminate()
        server.wait(30)
        log.close()


class Lab:
    def __init__(self, address, token, folder):
        self.address, self.token, self.folder = address, token, folder


# Where nobody looks and nothing moves, Chromium draws no frames, and JupyterLab waits for the pauses between
# frames to put in the cells: half a minute a page. On a screen there are always frames.
FRAMES = "setInterval(() => requestAnimationFrame(() => {}), 40);"


@pytest.fixture(scope="module")
def tab(lab):
    """JupyterLab in a tab of its own, as it is before the first notebook is opened."""
    assert CHROMIUM, "needs Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1250, "height": 1000})
        tab.errors, tab.hosts = [], set()
        tab.on("pageerror", lambda error: tab.errors.append(str(error)))
        tab.on("request", lambda request: tab.hosts.add(urlparse(request.url).hostname))
        tab.add_init_script(FRAMES)
        tab.goto(f"{lab.address}/lab?token={lab.token}&reset")
        expect(tab.locator(".jp-Launcher")).to_be_visible(timeout=60_000)
        yield tab
        browser.close()


@pytest.fixture(scope="module", autouse=True)
def report(request):
    """A folder for screenshots, and at the end the times of the instruments that were driven."""
    shutil.rmtree(REPORT, ignore_errors=True)
    REPORT.mkdir()
    yield
    table = [f"{'instrument':<22}  key press to new picture, ms: median  95th percentile"]
    for name, times in TIMES.items():
        late = statistics.quantiles(times, n=20)[-1]
        table.append(f"{name:<22} {statistics.median(times):>37.0f}  {late:>15.0f}")
    (REPORT / "times.txt").write_text("\n".join(table) + "\n")
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("\n" + "\n".join(table))


class Notebook:
    """One page, opened."""

    def __init__(self, tab, lab, path):
        self.tab, self.path = tab, lab.folder / path.name

    def open(self):
        self.tab.errors.clear()  # of another page
        self.command("docmanager:open", path=self.path.name)
        expect(self.tab.locator(".jp-Cell")).to_have_count(len(self.stored().cells), timeout=60_000)
        self.tab.evaluate("jupyterapp.shell.currentWidget.sessionContext.ready")  # a kernel is there
        self.idle()

    def close(self):
        """Saved, and with its kernel, as if the next opening were on another day."""
        self.command("docmanager:save")
        self.tab.evaluate("jupyterapp.serviceManager.sessions.shutdownAll()")
        self.tab.evaluate("jupyterapp.shell.currentWidget.close()")
        expect(self.tab.locator(".jp-Notebook")).to_have_count(0)

    def idle(self, seconds=180):
        indicator = self.tab.locator(".jp-Notebook-ExecutionIndicator")
        expect(indicator).to_have_attribute("data-status", "idle", timeout=1000 * seconds)

    def command(self, name, **arguments):
        self.tab.evaluate("async ([n, a]) => { await jupyterapp.commands.execute(n, a); }", [name, arguments])

    def run_all(self):
        self.tab.get_by_role("menuitem", name="Run", exact=True).click()
        self.tab.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        count = sum(cell.cell_type == "code" for cell in self.stored().cells)
        last = "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].at(-1).textContent"
        self.tab.wait_for_function(f"{last} === '[{count}]:'", polling=100, timeout=180_000)
        self.idle()

    def stored(self):
        return nbformat.read(self.path, as_version=4)

    def theme(self, name):
        self.command("apputils:change-theme", theme=f"JupyterLab {name}")
        expect(self.tab.locator("body")).to_have_attribute(
            "data-jp-theme-light", str(name == "Light").lower()
        )

    def shot(self, name, locator=None):
        (locator or self.tab).screenshot(path=REPORT / f"{self.path.stem[:2]}-{name}.png")


@contextmanager
def opened(tab, lab, path):
    notebook = Notebook(tab, lab, path)
    try:
        notebook.open()
        yield notebook
    finally:
        notebook.close()


def eventually(seconds=20):
    """A browser and a kernel need a moment."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)


# What an instrument shows at one moment: the values of its controls, its caption, its picture.
SNAPSHOT = """([handles, caption, picture]) => [
    handles.map(one => one.selectedIndex ?? Number(one.value ?? one.getAttribute('aria-valuenow'))),
    caption.innerText,
    picture.innerHTML,
]"""


class Live:
    """An instrument in the browser, beside its twin in Python: what the one shows, the other must say."""

    def __init__(self, notebook, n, twin):
        self.box = notebook.tab.locator(".mhalesson-instrument:has(.mhalesson-picture)").nth(n)
        self.box.scroll_into_view_if_needed()
        self.tab, self.twin = notebook.tab, twin
        self.picture = self.box.locator(".mhalesson-picture .widget-html-content")
        self.caption = self.box.locator(".mhalesson-caption .widget-html-content")
        self.handles = {name: self.handle(control) for name, control in twin.controls.items()}
        self.shown = [
            [handle.element_handle() for handle in self.handles.values()],
            self.caption.element_handle(),
            self.picture.element_handle(),
        ]

    def handle(self, control):
        """What a finger or a key would go to."""
        if isinstance(control, ipywidgets.Dropdown):
            return self.box.get_by_label(control.description, exact=True)
        role = "spinbutton" if isinstance(control, ipywidgets.BoundedFloatText) else "slider"
        return self.box.get_by_role(role, name=control.description, exact=True)

    def agrees(self, unlike=None):
        """The values on the page, drawn and described once more in Python, give what is on the page.

        With `unlike`, only once the values are others than these. Returns the values.
        """
        for _ in eventually():
            numbers, caption, picture = self.tab.evaluate(SNAPSHOT, self.shown)
            values = {
                name: control._options_values[number]
                if isinstance(control, ipywidgets.Dropdown)
                else type(control.value)(number)
                for (name, control), number in zip(self.twin.controls.items(), numbers, strict=True)
            }
            view = self.twin.render(**values)
            found = caption, ET.canonicalize(picture)
            if values != unlike and found == (view.caption, ET.canonicalize(view.svg)):
                break
        assert found == (view.caption, ET.canonicalize(view.svg)) and values != unlike
        return values

    def by_key(self, name, key):
        before = self.agrees()
        self.handles[name].press(key)
        self.agrees(unlike=before)

    def by_mouse(self, name):
        control, handle, before = self.twin.controls[name], self.handles[name], self.agrees()
        if isinstance(control, ipywidgets.Dropdown):
            chosen = control._options_values.index(before[name])
            handle.select_option(index=(chosen + 1) % len(control.options))
        elif isinstance(control, ipywidgets.BoundedFloatText):
            handle.click(click_count=3)
            self.tab.keyboard.type("-0.7")
            self.tab.keyboard.press("Enter")
        else:
            track = handle.locator("xpath=ancestor::*[contains(@class, 'noUi-base')]").bounding_box()
            grip = handle.bounding_box()
            y = grip["y"] + grip["height"] / 2
            left = grip["x"] + grip["width"] / 2 < track["x"] + track["width"] / 2
            self.tab.mouse.move(grip["x"] + grip["width"] / 2, y)
            self.tab.mouse.down()
            self.tab.mouse.move(track["x"] + track["width"] * (0.8 if left else 0.2), y, steps=4)
            self.tab.mouse.up()
        self.agrees(unlike=before)


# What is noted in the page: when a key went down, and when a new picture had been drawn.
STOPWATCH = """([picture, control]) => {
    const times = window.times = [];
    let down;
    control.addEventListener('keydown', () => { down = performance.now(); }, true);
    new MutationObserver(() => requestAnimationFrame(() => requestAnimationFrame(() => {
        if (down) times.push(performance.now() - down);
        down = undefined;
    }))).observe(picture, {childList: true});
}"""
TIMES = {}


def time_keys(live, cell):
    """Press arrow keys on the last control that has them, to and fro."""
    controls = live.twin.controls
    name = [name for name in controls if not isinstance(controls[name], ipywidgets.Dropdown)][-1]
    keys = ("ArrowDown", "ArrowUp") if live.agrees()[name] > controls[name].min else ("ArrowUp", "ArrowDown")
    handle = live.handles[name]
    handle.focus()
    live.tab.evaluate(STOPWATCH, [live.picture.element_handle(), handle.element_handle()])
    for n in range(PRESSES):
        live.tab.keyboard.press(keys[n % 2])
        live.tab.wait_for_function(f"times.length > {n}")
    TIMES[cell] = live.tab.evaluate("times")
    assert len(TIMES[cell]) == PRESSES


# --------------------------------------------------------------------------------------- the tests


@each_page
def test_a_page_in_the_browser(path, tab, lab):
    stored = nbformat.read(path, as_version=4)
    answers = {cell.id for cell in stored.cells if "reveal" in cell.metadata.get("tags", ())}
    with opened(tab, lab, path) as page:
        folded = tab.locator(".jp-OutputPlaceholder")
        expect(folded).to_have_count(len(answers))
        static_state(page)
        page.run_all()
        expect(folded).to_have_count(0)  # answers open when they are run
        expect(tab.locator(".mhalesson-static").filter(visible=True)).to_have_count(0)  # the live are there
        for cell, live in instruments(page):
            drive(live, cell)
        guess(page)
        for theme in ("Light", "Dark"):
            page.theme(theme)
            for cell, live in instruments(page):
                page.shot(f"{cell}-{theme.lower()}", live.box)
            page.shot(theme.lower())
        no_serious_finding(page)
        at_twice_the_size(page)
    nothing_went_wrong(page)
    with opened(tab, lab, path) as page:  # another day
        static_state(page)
        page.run_all()
        for _, live in instruments(page):
            live.agrees()
    nothing_went_wrong(page)


def test_an_instrument_survives_a_reload(tab, lab):
    """The page in the browser is new, the kernel is not: the widgets come back, with all that was added."""
    with opened(tab, lab, NOTEBOOKS[1]) as page:
        page.run_all()
        page.command("docmanager:save")
        tab.reload()
        expect(tab.locator(".jp-Cell").first).to_be_visible(timeout=60_000)
        for _, live in instruments(page):
            live.by_key("head", "ArrowUp")
            expect(live.caption).to_have_attribute("aria-live", "polite")
            expect(live.handles["head"]).to_have_attribute("data-lm-suppress-shortcuts", "true")
        expect(tab.locator(".mhalesson-instrument .widget-radio-box")).to_have_attribute("role", "radiogroup")
    assert tab.errors == []


def instruments(page):
    """Those of a page that has run, by the ids of their cells, one after the other in view."""
    for n, cell in enumerate(ON_PAGE[page.path.stem]):
        yield cell, Live(page, n, INSTRUMENTS[cell]())


def static_state(page):
    """Without their kernel, instruments are a picture with its caption, and guesses their options."""
    for cell in ON_PAGE[page.path.stem]:
        twin = INSTRUMENTS[cell]()
        view = twin.render(**twin.values())
        picture = page.tab.get_by_role("img", name=view.title, exact=True)
        picture.scroll_into_view_if_needed()
        expect(picture).to_be_visible()
        assert picture.evaluate("img => img.complete && img.naturalWidth > 0")
        expect(page.tab.get_by_text(view.caption, exact=True)).to_be_visible()
    outputs = [output.get("data", {}) for cell in page.stored().cells for output in cell.get("outputs", ())]
    guesses = [text for data in outputs if (text := data.get("text/plain", "")).startswith("My guess: ")]
    assert guesses
    for asked, *options in (text.replace("\n\n", "\n").split("\n- ") for text in guesses):
        static = page.tab.locator(".mhalesson-static", has=page.tab.get_by_text(asked, exact=True))
        expect(static).to_be_visible()
        expect(static.get_by_role("listitem")).to_have_text(options)
    expect(page.tab.locator(".mhalesson-instrument")).to_have_count(0)
    # What ipywidgets says where a kernel is gone: in every output that was live, and nobody sees it.
    gone = page.tab.locator(".jp-OutputArea-output.jupyter-widgets")
    expect(gone).to_have_count(sum(WIDGET_VIEW in data for data in outputs))
    expect(gone.filter(visible=True)).to_have_count(0)


def drive(live, cell):
    start = live.agrees()
    expect(live.caption).to_have_attribute("aria-live", "polite")
    region, box = live.caption.element_handle(), live.picture.bounding_box()
    some = list(live.twin.controls)
    for name in some[:2] + some[-2:] if len(some) > 4 else some:
        control = live.twin.controls[name]
        if isinstance(control, ipywidgets.Dropdown):
            if len(control.options) == 1:  # as many as there are recorded devices
                continue
            key = "ArrowDown"
        else:
            key = "ArrowUp" if start[name] < control.max else "ArrowDown"
        live.by_key(name, key)
        live.by_mouse(name)
    for button in live.box.get_by_role("button").all():
        button.click()
        live.agrees()
        button.press("Enter")
        live.agrees()
    time_keys(live, cell)
    live.agrees()
    for _ in range(MOVES):
        live.tab.keyboard.press("ArrowUp")
    live.tab.keyboard.press("ArrowDown")
    live.agrees()
    assert live.picture.bounding_box()["height"] == box["height"], "the page below must not jump"
    assert live.box.locator("svg").count() == 1
    assert live.tab.evaluate("region => region.isConnected", region), (
        "a live region stays when its words change"
    )


def guess(page):
    """One is chosen by keyboard, another by mouse; the answer, run again, says so (on 05 it takes long)."""
    asked = page.tab.locator(".mhalesson-instrument b", has_text="My guess: ").first.text_content()
    options = page.tab.get_by_role("radiogroup", name=asked, exact=True).locator("input")
    options.first.focus()
    page.tab.keyboard.press("Space")
    expect(options.first).to_be_checked()
    page.tab.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_be_checked()
    expect(options.first).not_to_be_checked()
    options.last.click()
    expect(options.last).to_be_checked()
    if page.path.stem.startswith("05"):
        return
    chosen = options.last.locator("xpath=ancestor::label").text_content().strip()
    answer = page.tab.locator(".jp-CodeCell", has_text=re.compile("my guess:")).first
    answer.locator(".cm-content").click()
    page.tab.keyboard.press("Control+Enter")
    expect(answer.locator(".jp-OutputArea")).to_contain_text(f"my guess: {chosen}", timeout=60_000)
    page.idle()


def no_serious_finding(page):
    """Of what is ours: the text and the instruments, not JupyterLab's own frame and editors.

    JupyterLab shows a PNG without the words that would stand for it, whatever the notebook holds; our
    captions follow as text.
    """
    found = Axe().run(page.tab, context=".jp-Notebook").response["violations"]
    ours = [
        (violation["id"], node["html"][:200])
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
        if page.tab.locator(node["target"][0]).first.evaluate(
            "node => !!node.closest('.jp-RenderedMarkdown, .mhalesson-instrument, .jp-OutputArea-output')"
            " && !node.closest('.jp-RenderedImage')"
        )
    ]
    assert ours == []


# From the instrument outwards, nothing is wider than where it is.
FITS = """box => {
    for (let at = box; at; at = at.parentElement) if (at.scrollWidth > at.clientWidth + 1) return false;
    return true;
}"""


def at_twice_the_size(page):
    """A zoom of 200 % leaves half as many pixels: the picture may be scrolled, the page is not."""
    page.command("application:toggle-left-area")
    page.tab.set_viewport_size({"width": 625, "height": 1000})
    for cell, live in instruments(page):
        page.shot(f"{cell}-zoomed", live.box)
        assert live.box.evaluate(FITS)
        assert live.picture.locator("svg").bounding_box()["width"] >= 480  # 14 px of 640 are still 10
    page.tab.set_viewport_size({"width": 1250, "height": 1000})
    page.command("application:toggle-left-area")


def nothing_went_wrong(page):
    assert page.tab.errors == []
    assert page.tab.hosts - {None} == {"127.0.0.1"}
    stored = page.stored()
    assert stored.metadata.get("widgets") is None and stored.metadata.kernelspec == KERNELSPEC
    for cell in stored.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error" and output.get("name") != "stderr", (cell.id, output)
        assert not cell.metadata.get("jupyter", {}).get("outputs_hidden"), cell.id
