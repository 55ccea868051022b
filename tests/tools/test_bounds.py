# Resources of the command for files from an untrusted source: memory and output in proportion to
# the file, whatever it unfolds to.
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import unfolding
from stasis_process import CommandTest, LLAMA, comma, command

LONG = b"\x01" * 65536
CAPACITY = 100000
POSITIONS, TEXTS = 1237, 137  # numbers that the manifest says but once


def long_text(count):
    return [(7, 0, 0, 0)] * count, [(7, LONG)]


def many_long_texts(count):
    return [(i % 4, 0, 2, 0x80 | i % 4) for i in range(count)], [(i, LONG) for i in range(4)]


def many_spans(count):
    return ([(i % 50, 0, 1 + i % 2, 0x83) for i in range(count)],
            [(i, bytes([i]) * 300) for i in range(50)])


class Bounds(CommandTest):
    def base(self):
        tokens = [i % TEXTS for i in range(POSITIONS)]
        model = pathlib.Path(self.path("model"))
        shutil.copytree(LLAMA, model)
        config = json.loads((model / "config.json").read_text())
        config["max_position_embeddings"] = CAPACITY
        (model / "config.json").write_text(json.dumps(config))
        self.ok("run", model, "--tokens", comma(tokens), "-n", 0, "--keep", "none", "--save",
                self.path("base"))
        return pathlib.Path(self.path("base")).read_bytes()

    def measured(self, *arguments):
        """Exit code, bytes of stdout, bytes of memory at most."""
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen([str(command()), *arguments], stdout=out)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, out.seek(0, os.SEEK_END), 1024 * used.ru_maxrss

    def test_memory_and_output_are_in_proportion_to_the_file(self):
        base = self.base()
        plain = self.measured("inspect", self.path("base"))[2]
        for shape in (long_text, many_long_texts, many_spans):
            for count in (100, 6000):
                path, other = self.path("unfolding"), self.path("other")
                entries, texts = shape(count)
                data = unfolding.unfolded(base, entries, texts)
                pathlib.Path(path).write_bytes(data)
                entries[-1] = (9, 0, 0, 0)
                pathlib.Path(other).write_bytes(unfolding.unfolded(base, entries, texts))
                for code, *arguments in ((0, "inspect", path), (0, "inspect", path, "--json"),
                                         (0, "report", path), (1, "diff", path, other),
                                         (0, "report", path, "--against", other)):
                    with self.subTest(shape=shape.__name__, count=count, of=arguments[0]):
                        ended, length, memory = self.measured(*arguments)
                        self.assertEqual(ended, code)
                        self.assertLess(length, 200 * len(data) + (1 << 20))
                        self.assertLess(memory, plain + 100 * len(data) + (16 << 20))
