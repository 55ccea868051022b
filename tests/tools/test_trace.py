# stasis run --trace: JSON lines that add up to what the session has.
import json

from stasis_process import CommandTest, GEMMA, LLAMA, all_tokens, comma

PAGES = ("held", "taken", "shared", "copied", "filled", "released", "read")


class Trace(CommandTest):
    def lines(self, *args):
        run = self.json("run", *args, "--trace", self.path("trace"))
        with open(self.path("trace"), encoding="utf-8") as file:
            return run, [json.loads(line) for line in file]

    def pages_of(self, lines):
        """The page table that the events lead to: bytes of each page."""
        pages = {}
        for line in lines:
            place = (line.get("group"), line["begin"])
            if line["event"] in ("held", "taken", "shared"):
                self.assertNotIn(place, pages)
                pages[place] = line["bytes"]
            elif line["event"] == "released":
                del pages[place]
            elif line["event"] in ("copied", "filled"):
                self.assertIn(place, pages)
        return pages

    def test_the_lines_add_up(self):
        for model in GEMMA, LLAMA:
            tokens = all_tokens(model)[:200]
            prompt = [model, "--tokens", comma(tokens), "-n", 9, "--ignore-eos"]
            run, lines = self.lines(*prompt, "--save", self.path("s"), "--replace")
            self.assertEqual(run["digest"], self.json("run", *prompt)["digest"])
            for line in lines:
                wanted = ["event"] + (["group", "window"] if line["event"] in PAGES else [])
                self.assertEqual(list(line)[:len(wanted) + 3], wanted + ["begin", "end", "bytes"])
            appended = [(line["begin"], line["end"]) for line in lines
                        if line["event"] == "append"]
            self.assertEqual(appended, [(0, len(tokens))] + [
                (at, at + 1) for at in range(len(tokens), run["position"])])
            self.assertEqual((lines[-1]["event"], lines[-1]["digest"]), ("save", run["digest"]))
            pages = self.pages_of(lines)
            groups = {line["group"] for line in lines if "group" in line}
            for group in groups:
                starts = sorted(begin for of, begin in pages if of == group)
                self.assertEqual(starts, list(range(starts[0], run["position"], 64)))
            again, resumed = self.lines(model, "--resume", self.path("s"), "-n", 1,
                                        "--ignore-eos")
            kinds = [line["event"] for line in resumed]
            self.assertEqual(resumed[kinds.index("load")]["digest"], run["digest"])
            loaded = self.pages_of(resumed[:kinds.index("load")])
            self.assertEqual(loaded, pages)
            self.assertEqual(again["position"], run["position"] + 1)

    def test_reads_and_drafts(self):
        prompt = [LLAMA, "--tokens", comma(all_tokens(LLAMA)[:130]), "-n", 40, "--ignore-eos"]
        plain, lines = self.lines(*prompt, "--draft-lookup", "--trace-reads")
        reads = [line for line in lines if line["event"] == "read"]
        passes = plain["passes"] + 1
        self.assertGreaterEqual(len(reads), passes)
        self.assertEqual(len([line for line in lines if line["event"] == "append"]), 41)
        held = self.pages_of(lines)
        self.assertEqual(len(held), -(-plain["position"] // 64))

    def test_what_cannot_be_written_is_refused(self):
        prompt = ["run", LLAMA, "--tokens", "1,2,3", "-n", 0]
        self.refused(*prompt, "--trace", self.path("nowhere/trace"))
        self.refused(*prompt, "--trace", "/dev/full")
        self.refused(*prompt, "--trace-reads")
