# stasis report, in a browser: every token's text is present and coloured by its source, hostile
# texts do nothing, nothing is fetched, keys and pointers show the data of a token.
import html.parser
import http.server
import pathlib
import re
import shutil
import threading
import unittest

import browser
from stasis_process import (DATA, GEMMA, LLAMA, WITHOUT_TOKENIZER, CommandTest, all_tokens, comma,
                            turns_of)

LOG_TEXT = "[...document.querySelectorAll('#log .t')].map((node) => node.textContent).join('')"
SEED = 2**64 - 3  # a script's numbers are not as exact
BYTE_TOKEN = 7  # of <0x00> in the vocabulary of recall-gemma3; see its tokenizer.model


class Page(html.parser.HTMLParser):
    """Tags with their attributes, and what lies in script and style."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.raw = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.lasttag in ("script", "style"):
            self.raw.append(data)


class ReportFile(CommandTest):
    def test_one_file_that_names_nothing_outside_itself(self):
        self.json("run", GEMMA, "--tokens", comma(all_tokens(GEMMA)), "-n", 0, "--save",
                  self.path("s"))
        text = self.ok("report", self.path("s"))
        self.ok("report", self.path("s"), "-o", self.path("page.html"))
        self.assertEqual((self.folder / "page.html").read_text(encoding="utf-8"), text)
        self.assertNotIn("{{", text)
        page = Page(text)
        policy = next(attrs["content"] for tag, attrs in page.tags
                      if attrs.get("http-equiv") == "Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("http", policy)
        for tag, attrs in page.tags:
            self.assertNotIn(tag, ("link", "img", "iframe", "object", "embed", "form", "base"))
            self.assertNotIn("src", attrs)
            self.assertTrue(attrs.get("href", "#").startswith("#"))
            self.assertFalse([name for name in attrs if name.startswith("on")])
        for word in "@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML", "eval(", "import(":
            self.assertNotIn(word, "".join(page.raw))

    def test_refusals(self):
        self.refused("report", self.path("missing"), names=["missing"])
        self.json("run", GEMMA, "--tokens", "1,2,3", "-n", 0, "--save", self.path("s"))
        self.refused("report", self.path("s"), "-o", self.folder, names=["directory"])
        self.refused("report", self.path("s"), "--against", self.path("missing"))
        (self.folder / "bad").write_bytes((self.folder / "s").read_bytes()[:-100])
        self.refused("report", self.path("bad"), names=["bad"])


@unittest.skipIf(browser.PATH is None, "there is no chromium to look at the page with")
class ReportInBrowser(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, name, *options):
        self.ok("report", self.path(name), "-o", self.path(name + ".html"), *options)
        self.browser.open(self.folder / (name + ".html"))
        self.assertEqual(self.browser.errors, [])
        return self.json("inspect", self.path(name))

    def count(self, selector):
        return self.browser.evaluate(f"document.querySelectorAll({selector!r}).length")

    def detail(self):
        return self.browser.evaluate("document.getElementById('detail').innerText")

    def talk(self, name, model=GEMMA, turns=3, *options):
        users = [turn["user"] for turn in turns_of(model)[:turns]]
        return self.chat(model, users, "--session", self.path(name), *options)

    def test_every_token_is_there_coloured_by_its_source(self):
        for model in GEMMA, LLAMA:
            self.talk(model.name, model)
            inspected = self.open(model.name)
            self.assertEqual(self.browser.evaluate(LOG_TEXT), inspected["text"])
            self.assertEqual(self.count("#log .t"), inspected["position"])
            for source, count in inspected["elements"]["input_token_buffer"]["sources"].items():
                self.assertEqual(self.count(f"#log .t.{source}"), count)
            self.assertEqual(self.count("#log .turn.user"), 3)
            shown = self.browser.evaluate("document.body.innerText")
            for digest in inspected["root"], inspected["digest"]:
                self.assertIn(digest, shown)
            self.assertEqual(self.count("#elements-list details"), 12)
            pages = inspected["elements"]["kv_cache"]["pages"]
            self.assertEqual(self.count("#groups .cell"), len(pages))
            self.assertEqual(self.count("#groups .cell.stored"),
                             sum(1 for page in pages if page["runs"]))

    def test_pointer_and_keys_lead_to_what_is_known(self):
        self.talk("s", GEMMA, 2, "--temperature", "0.7", "--seed", SEED)
        inspected = self.open("s")
        self.browser.point("#log .t.sampled")
        first = next(span for span in inspected["spans"] if span["source"] == "sampled")
        self.assertRegex(self.detail(), rf"position\s+{first['begin']}\b")
        self.assertRegex(self.detail(), rf"seed\s+{SEED}\b")
        self.assertRegex(self.detail(), r"temperature\s+0\.7\b")
        self.browser.point("#log .t", click=True)
        self.assertRegex(self.detail(), r"position\s+0\b")
        for key, position in (("ArrowRight", 1), ("End", inspected["position"] - 1),
                              ("ArrowLeft", inspected["position"] - 2), ("Home", 0),
                              ("ArrowDown", inspected["spans"][0]["end"])):
            self.browser.press(key)
            self.assertRegex(self.detail(), rf"position\s+{position}\b")
        self.assertEqual(self.count("#log .t[tabindex='0']"), 1)
        self.browser.point("#groups .cell", click=True)
        digest = inspected["elements"]["kv_cache"]["pages"][0]["digest"]
        self.assertIn(digest, re.sub(r"\s", "", self.detail()))
        self.assertEqual(self.count("#log .t.marked"), 64)

    def test_hostile_texts_are_inert_and_nothing_is_fetched(self):
        hits = []

        class Counter(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                hits.append(self.path)
                self.send_error(404)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Counter)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        image = f"<img src=http://127.0.0.1:{server.server_port}/x onerror=document.title='owned'>"

        model = self.folder / "model"
        shutil.copytree(GEMMA, model)
        pieces = (model / "tokenizer.model").read_bytes()
        self.assertEqual(pieces.count(b"variable"), 1)
        # One token that would end the script element, were it not written otherwise.
        (model / "tokenizer.model").write_bytes(pieces.replace(b"variable", b"</script"))
        hostile = f"</script><script>document.title='owned'</script><!-- {image} \"'&amp;"
        name = "<b onclick=x>&.stasis"
        self.chat(model, [hostile, "a </script>"], "--session", self.path(name))
        inspected = self.open(name)
        self.assertIn("</script", inspected["text"])
        self.assertEqual(self.browser.evaluate(LOG_TEXT), inspected["text"])
        self.assertEqual(self.browser.evaluate("document.getElementById('name').textContent"), name)
        self.assertNotIn("owned", self.browser.evaluate("document.title"))
        self.assertEqual(self.count("script"), 2)
        self.assertEqual(self.count("img, b[onclick]"), 0)
        self.assertEqual([url for url in self.browser.requests if not url.startswith("file:")], [])
        self.assertEqual(hits, [])
        # The same markup, were it markup: the browser does ask.
        (self.folder / "control.html").write_text(f"<title>x</title>{image}", encoding="utf-8")
        self.browser.open(self.folder / "control.html")
        self.assertEqual(hits, ["/x"])

    def test_split_characters_and_bytes_that_are_no_text(self):
        euro = [BYTE_TOKEN + byte for byte in "\u20ac".encode()]
        lone = [BYTE_TOKEN + 0xC3, BYTE_TOKEN + 0x28]
        self.json("run", GEMMA, "--tokens", comma([2, *euro, 300, *lone]), "-n", 0, "--save",
                  self.path("s"))
        inspected = self.open("s")
        self.assertIn("\u20ac", inspected["text"])
        texts = self.browser.evaluate(
            "[...document.querySelectorAll('#log .t')].map((node) => node.textContent)")
        self.assertEqual(texts[1:4], ["\u20ac", "", ""])
        self.assertEqual(texts[5:], ["\ufffd", "("])
        self.assertEqual(self.count("#log .t[data-label='C3']"), 1)

    def test_without_a_tokenizer_tokens_are_numbers(self):
        self.json("run", WITHOUT_TOKENIZER, "--tokens", "5,6,7", "-n", 0, "--save", self.path("s"))
        self.open("s")
        self.assertEqual(self.count("#log .t[data-label='6']"), 1)

    def test_where_two_part(self):
        tokens = all_tokens(GEMMA)[:200]
        for name, log in (("a", tokens), ("b", tokens[:150] + [300] + tokens[151:]), ("c", tokens)):
            self.json("run", GEMMA, "--tokens", comma(log), "-n", 0, "--save", self.path(name))
        inspected = self.open("a", "--against", self.path("b"))
        other = self.json("inspect", self.path("b"))
        lead = self.browser.evaluate("document.getElementById('parting-lead').textContent")
        self.assertIn("the same 150 tokens", lead)
        self.assertIn("position 150", lead)
        pages = [one["elements"]["kv_cache"]["pages"] for one in (inspected, other)]
        shared = sum(a["digest"] == b["digest"] for a, b in zip(*pages))
        self.assertGreater(shared, 0)
        self.assertLess(shared, len(pages[0]))
        self.assertEqual(self.count("#groups .cell.shared"), shared)
        note = self.browser.evaluate("document.getElementById('parting-note').textContent")
        self.assertIn(f"{shared} of {len(pages[0])} pages", note)
        found = self.ok("diff", self.path("a"), self.path("b"), code=1)
        message = found[len("different: "):found.index(" [position")]
        self.assertTrue(note.endswith(f" The first difference that counts: {message}."), note)
        self.assertEqual(self.count("#parting .side"), 2)
        self.open("a", "--against", self.path("c"))
        self.assertIn("bit for bit", self.browser.evaluate(
            "document.getElementById('parting-lead').textContent"))
        self.assertEqual(self.count("#groups .cell.own"), 0)

    def differing(self):
        return self.browser.evaluate(
            "[...document.querySelectorAll('#elements-list em')].map((node, i) => "
            "node.className === 'differs' ? i + 1 : 0).filter(Boolean)")

    def test_elements_differ_where_the_states_do_and_not_where_files_do(self):
        tokens = all_tokens(GEMMA)[:200]
        logs = {"a": tokens, "same": tokens, "token": tokens[:150] + [300] + tokens[151:]}
        for name, log in logs.items():
            options = ["--codec", "zstd"] if name == "same" else []
            self.json("run", GEMMA, "--tokens", comma(log[:170]), "-n", 0, "--save",
                      self.path(name))
            self.json("run", GEMMA, "--resume", self.path(name), "--tokens", comma(log[170:]),
                      "-n", 0, "--save", self.path(name), *options)
        self.json("run", GEMMA, "--tokens", comma(tokens), "-n", 0, "--save", self.path("none"),
                  "--keep", "none")
        for other in "same", "none":
            self.open("a", "--against", self.path(other))
            self.assertEqual(self.differing(), [], other)
        self.open("a", "--against", self.path("token"))
        self.assertEqual(self.differing(), [1, 4, 9])

    def test_recurrent_states_are_named_and_how_they_are_stored_is_no_difference(self):
        golden = DATA / "golden/recurrent"
        page = self.folder / "page.html"
        last = "[...document.querySelectorAll('#groups h3')].map((each) => each.innerText).at(-1)"
        shown = {"zstd": "states after 30, 60, 70 tokens", "none": "no state stored"}
        for name, text in shown.items():
            self.ok("report", golden / f"{name}.stasis", "-o", page)
            self.browser.open(page)
            self.assertRegex(self.browser.evaluate(last), rf"Layers 0, 2, 4\s*recurrent · {text}")
        self.ok("report", golden / "zstd.stasis", "--against", golden / "none.stasis", "-o", page)
        self.browser.open(page)
        self.assertEqual(self.count("#elements-list em.differs"), 0)

    def test_pages_in_runs_compressed_and_not_kept(self):
        users = [turn["user"] for turn in turns_of(GEMMA)]
        for name, options in (("zstd", ["--codec", "zstd"]), ("none", ["--keep", "none"])):
            for part in users[:4], users[4:]:
                self.chat(GEMMA, part, "--session", self.path(name), *options)
            inspected = self.open(name)
            pages = inspected["elements"]["kv_cache"]["pages"]
            runs = [len(page["runs"]) for page in pages]
            self.assertEqual(self.browser.evaluate(
                "[...document.querySelectorAll('#groups .cell')].map((cell) => "
                "Number(cell.dataset.runs || cell.classList.contains('stored')))"), runs)
            kind = "kept-out" if name == "none" else "released"
            self.assertEqual(self.count(f"#groups .cell.{kind}"), runs.count(0))
            self.assertGreater(runs.count(0), 0)
            legend = self.browser.evaluate("document.getElementById('cache-legend').innerText")
            self.assertEqual("in so many runs" in legend, max(runs) > 1)
            if name == "zstd":
                self.assertGreater(max(runs), 1)
                self.browser.point("#groups .cell.stored", click=True)
                page = next(page for page in pages if page["runs"])
                share = sum(run["stored"] for run in page["runs"]) / page["bytes"]
                self.assertRegex(self.detail(), rf"zstd\s+{100 * share:.0f} %")
                self.assertRegex(self.detail(), rf"runs\s+{len(page['runs'])}\b")

    def test_turns_are_as_high_as_their_text(self):
        self.talk("s", GEMMA, 8)
        self.open("s")
        before = self.browser.evaluate("document.documentElement.scrollHeight")
        self.browser.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        self.assertEqual(self.browser.evaluate("document.documentElement.scrollHeight"), before)

    def test_both_schemes_and_narrow_screens(self):
        self.talk("s")
        self.open("s")
        colours = []
        for scheme in "light", "dark":
            self.browser.scheme(scheme)
            colours.append(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.browser.scheme("")
        self.assertEqual(len(set(colours)), 2)
        self.addCleanup(self.browser.resize, 1280, 900)
        for width in 320, 500, 800, 1280, 2000:
            self.browser.resize(width, 900)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"),
                                 width)
