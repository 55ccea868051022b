# No string of a file or model reaches a terminal as something that it obeys: escapes that write the
# clipboard or the title, forged lines, texts turned round. Every control character, planted
# wherever a foreign string can stand, and every command's output read back through a terminal.
import json
import os
import pty
import re
import shutil
import subprocess
import termios

import forgery
from stasis_process import CommandTest, DATA, GEMMA, LLAMA, command

# C0 but for line ends and tabs, DEL, C1, bidirectional controls, separators: as text.
OBEYED = [*range(1, 9), *range(11, 32), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F,
          *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
RAW = re.compile("[" + "".join(map(chr, OBEYED)) + "]")
FORGED = "verified: everything is well"
HOSTILE = "\x1b]52;c;QQ==\x07\n" + FORGED + "\r" + "".join(map(chr, OBEYED))


class Terminal(CommandTest):
    def shown(self, *arguments, text=""):
        """Exit code and all that a terminal gets of both streams."""
        leader, follower = pty.openpty()
        settings = termios.tcgetattr(follower)
        settings[1] = 0  # no line ends are made into others
        termios.tcsetattr(follower, 0, settings)
        process = subprocess.Popen([os.fsencode(str(command()))] +
                                   [os.fsencode(str(each)) for each in arguments],
                                   stdin=subprocess.PIPE, stdout=follower, stderr=follower)
        os.close(follower)
        try:
            process.stdin.write(text.encode())
            process.stdin.close()
        except BrokenPipeError:  # it refused its arguments and ended before it read
            pass
        output = b""
        while True:
            try:
                part = os.read(leader, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            output += part
        os.close(leader)
        return process.wait(), output

    def check_clean(self, output, where, forged=True):
        # The progress bar's own: back to the line's start, clear it.
        output = output.replace(b"\r\x1b[K", b"")
        output = re.sub(rb"\r[^\r\n]* \[[#.]{30}\] +\d+ %", b"", output)
        text = output.decode()  # throws where it is not UTF-8
        self.assertIsNone(RAW.search(text), (where, text))
        for line in text.splitlines() if forged else []:
            self.assertFalse(line.startswith(FORGED), (where, text))

    def clean(self, *arguments, codes=(0, 1, 2), text=""):
        """Of the commands whose business is a text, its line ends are line ends."""
        code, output = self.shown(*arguments, text=text)
        self.assertIn(code, codes, (arguments, output))
        forged = arguments[0] not in ("detokenize", "template", "report")
        self.check_clean(output, arguments, forged)
        return output.decode()

    def test_every_character_in_a_file_name(self):
        (self.folder / "d").mkdir()
        points = [9, 10, *OBEYED]
        for names in [chr(point) for point in points], [b"\xff", b"\x9b", b"\xed\xa0\x80"]:
            for name in names:
                self.clean("verify", os.fsencode(self.path("d/")) + os.fsencode(name), GEMMA,
                           codes=(2,))
        name = os.fsdecode(os.fsencode(self.path("")) + HOSTILE[:60].encode() + b"\xff")
        self.ok("run", GEMMA, "--tokens", "1,2", "-n", 0, "--save", name)
        for call in (["inspect", name], ["verify", name, GEMMA], ["replay", name, GEMMA],
                     ["compact", name], ["run", GEMMA, "--resume", name, "-n", 2],
                     ["inspect", name, "--json"], ["report", name]):
            self.clean(*call, codes=(0,))
        for call in (["chat", LLAMA, "--session", name], ["diff", name, "none"],
                     ["run", LLAMA, "--resume", name], ["info", name], ["quantize", name, "x"],
                     ["run", GEMMA, "--tokens", "1", "--save", name + "/x"], [HOSTILE],
                     ["run", GEMMA, "--" + HOSTILE], ["run", GEMMA, "--tokens", HOSTILE],
                     ["run", GEMMA, "--tokens", "1", "--top-k", HOSTILE],
                     ["tokenize", GEMMA, "x", HOSTILE], ["synth", HOSTILE, name],
                     ["run", GEMMA, "--kernels", HOSTILE, "--tokens", "1"]):
            self.clean(*call, codes=(2,), text="hello\n")

    def copy(self, source):
        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        return folder

    def test_every_string_of_a_config(self):
        """In each field in turn; those that are checked are named in the error."""
        for file in "config.json", "generation_config.json", "tokenizer_config.json":
            content = json.loads((LLAMA / file).read_text())
            for key, value in content.items():
                model = self.copy(LLAMA)
                for planted in HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}:
                    (model / file).write_text(json.dumps({**content, key: planted}))
                    self.clean("info", model)
            model = self.copy(LLAMA)
            (model / file).write_text(json.dumps({HOSTILE: 1}) + HOSTILE)
            self.clean("info", model)
        for name in "temperature", "top_k", "do_sample":
            model = self.copy(LLAMA)
            (model / "generation_config.json").write_text(json.dumps({name: HOSTILE}))
            self.clean("chat", model, codes=(2,), text="hello\n")

    def test_a_chat_template(self):
        for template in (HOSTILE, "{{ raise_exception('" + HOSTILE + "') }}",
                         "{% " + HOSTILE + " %}"):
            model = self.copy(LLAMA)
            config = json.loads((model / "tokenizer_config.json").read_text())
            config["chat_template"] = template
            (model / "tokenizer_config.json").write_text(json.dumps(config))
            self.clean("info", model)
            self.clean("chat", model, text="hello\n")
            (self.folder / "m.json").write_text(
                json.dumps([{"role": HOSTILE, "content": HOSTILE}]))
            for each in model, LLAMA:
                self.clean("template", each, "--messages", self.path("m.json"))

    def test_pieces_of_a_vocabulary(self):
        """A model whose tokens spell control characters, and a session made of them."""
        source = self.folder / "m.gguf"
        self.ok("quantize", LLAMA, source, "--type", "BF16")
        tokens = self.json("tokenize", source, HOSTILE)["tokens"]
        listed = ",".join(map(str, tokens))
        path = self.path("s")
        self.ok("run", source, "--tokens", listed, "-n", 1, "--ignore-eos", "--save", path)
        for call in (["inspect", path], ["inspect", path, "--json"], ["replay", path, source],
                     ["verify", path, source], ["tokenize", source, HOSTILE],
                     ["tokenize", source, HOSTILE, "--json"], ["detokenize", source, listed],
                     ["detokenize", source, listed, "--json"], ["info", source]):
            self.clean(*call, codes=(0,))
        # An output that is no terminal gets the bytes.
        done = self.run_command("detokenize", source, listed)
        self.assertEqual(done.stdout.decode(), HOSTILE + "\n")
        self.assertEqual(json.loads(self.ok("detokenize", source, listed, "--json"))["text"],
                         HOSTILE)

    def test_strings_of_a_snapshot(self):
        """Each name and value that a file gives of its model, its checksums made right again."""
        path, forged = self.path("s"), self.path("f")
        self.ok("run", LLAMA, "--prompt", "a", "--bos", "-n", 2, "--save", path)
        data = (self.folder / "s").read_bytes()
        words = {word for word in re.findall(rb"[a-z][a-z_-]{5,}", data) if data.count(word) == 1}
        self.assertGreater(len(words), 10)
        words = sorted(words)[os.getpid() % 3::3]  # a third of them at a time
        for word in words:
            for planted in "\x1b]0;\x07", "\u009b1m\u202e", "\n" + FORGED:
                text = planted.encode()[:len(word)]
                text = text.decode(errors="ignore").encode()
                shutil.copy(path, forged)
                forgery.change(forged, word, text + b"x" * (len(word) - len(text)))
                for call in (["inspect", forged], ["diff", path, forged],
                             ["verify", forged, LLAMA]):
                    self.clean(*call)

    def test_metadata_of_a_gguf_file(self):
        source, edited = self.folder / "m.gguf", self.folder / "e.gguf"
        self.ok("quantize", DATA / "zoo/llama-gqa-untied", source, "--type", "BF16")
        data = source.read_bytes()
        # Every run of letters in front of the tensors, one after the other.
        end = data.rindex(b".weight") + 7
        places = [match.span() for match in re.finditer(rb"[a-z_.0-9]{4,}", data[:end])][::3]
        self.assertGreater(len(places), 10)
        for begin, stop in places:
            for planted in b"\x1b]0;", b"\xc2\x9b" * 2, b"\n" + FORGED.encode():
                size = min(stop - begin, len(planted))
                edited.write_bytes(data[:begin] + planted[:size] + data[begin + size:])
                self.clean("info", edited)
