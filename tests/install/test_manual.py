# The manual page: well-formed, and naming each command and each option that `stasis --help` names,
# none that it does not, each in its place.
import re
import shutil

from installed import InstalledTest, help_of, options_of, prefix, subcommands


def sections(text):
    """The page's source under each of its headings (.Sh and .Ss), by the heading's first words."""
    parts = re.split(r"^\.S[hs] (.*)\n", text, flags=re.MULTILINE)
    return {title.split(" Oo ")[0].strip(): body for title, body in zip(parts[1::2], parts[2::2])}


def options_in(text):
    """Options that it lists or that its synopsis names, with what each takes."""
    listed = re.findall(r"^\.It Fl (\S+)((?: .*)?)$", text, re.MULTILINE)
    return {option(name): bool(value) for name, value in listed}


def option(name):
    return "-" + name


class Manual(InstalledTest):
    @classmethod
    def setUpClass(cls):
        cls.page = prefix() / "share/man/man1/stasis.1"
        cls.sections = sections(cls.page.read_text())
        cls.headings = re.findall(r"^\.Ss (.*)$", cls.page.read_text(), re.MULTILINE)

    def heading(self, subcommand):
        found = [line for line in self.headings if line.split()[0] == subcommand]
        self.assertEqual(len(found), 1, subcommand)
        return found[0]

    def test_well_formed(self):
        if shutil.which("mandoc") is None:
            self.skipTest("mandoc is not installed")
        self.assertEqual(self.ok("mandoc", "-Tlint", "-Wstyle", self.page), "")

    def test_every_command_and_no_other(self):
        titles = [line.split()[0] for line in self.headings if line[0].islower()]
        self.assertEqual(titles, subcommands())

    def test_every_option_and_no_other(self):
        shared = {title: options_in(self.sections[title])
                  for title in ("Generating", "Saving", "Computing")}
        for subcommand in subcommands():
            heading = self.heading(subcommand)
            body = self.sections[heading.split(" Oo ")[0].strip()]
            named = options_in(body)
            for title in set(re.findall(r"^\.Sx (\w+)", body, re.MULTILINE)):
                self.assertFalse(set(named) & set(shared[title]), subcommand)
                named.update(shared[title])
            if "Oo Fl -json" in heading or re.search(r"^Takes\n\.Fl -json$|^With\n\.Fl -json ,$",
                                                     body, re.MULTILINE):
                named["--json"] = False
            has = {name: bool(value) for name, value in options_of(subcommand).items()
                   if name != "-h"}
            self.assertEqual(named, has, subcommand)

    def test_words_that_options_take(self):
        """Where --help names the words to choose from, the page does."""
        for subcommand in subcommands():
            for name, value in options_of(subcommand).items():
                if "|" in value:
                    self.assertIn(f".It Fl {name[1:]} Cm {value.replace('|', ' | ')}\n",
                                  self.page.read_text(), f"{subcommand} {name}")
        for subcommand, name, line in (("run", "--chat-template", r"--chat-template TEXT +(.*)"),
                                       ("quantize", "--type", r"Types: ((?:.*\n)*?.*)Norms"),
                                       ("synth", "SHAPE", r"Shapes: (.*)\.")):
            words = re.findall(r"[\w.-]*\d[\w.-]*|gemma|chatml|zephyr|mistral",
                               re.sub(r"\([^)]*\)", "", re.search(line, help_of(subcommand))[1]))
            self.assertGreater(len(words), 4)
            for word in words:
                self.assertRegex(self.page.read_text(), rf"(?<!\w){word}(?!\w)", name)
