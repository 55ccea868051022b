# The wheel as a newcomer meets it: installed without build tools into an environment that is new,
# it holds a conversation within seconds, in Python and by its command, with the library that it
# brought; and it says of itself what auditwheel says.
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import venv
import zipfile
from pathlib import Path

import seaweedfs
from stasis_process import GEMMA, ROOT, command, turns_of
from troubled_s3 import TroubledService

FIRST = turns_of(GEMMA)[0]
SECONDS_MAX = 10  # of pip install and the first reply
PROGRAM = """
import ctypes, stasis, sys
model = stasis.Model(sys.argv[1])
session = model.session()
print("".join(session.say(sys.argv[2])))
print(session.digest)
print([line.split()[-1] for line in open("/proc/self/maps") if "libstasis.so" in line][0])
print(sorted({line.split()[-1] for line in open("/proc/self/maps")
              if any(name in line for name in ("crypto", "zstd", "pcre", "sentencepiece"))
              and "python" not in line.split()[-1]}))
"""
STORE = """
import stasis, sys
model = stasis.Model(sys.argv[1])
session = model.session()
session.append([5, 7, 11])
with stasis.Store(sys.argv[2]) as store:
    store.put(session, "talk")
    print(store.get(model, "talk").digest == session.digest, [each.name for each in store.list()])
print([line.split()[-1] for line in open("/proc/self/maps") if "libstasis_s3" in line][0])
print(sorted({line.split()[-1] for line in open("/proc/self/maps")
              if any(name in line for name in ("libcurl", "libssl", "libcrypto"))
              and "python" not in line.split()[-1]}))
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="stasis-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        # Three architectures take minutes.
        cls.cuda = "STASIS_TEST_ALL" in os.environ and (
            command().parent / "abi/libstasis_cuda.so.0").exists()
        made = subprocess.run([sys.executable, ROOT / "tools/wheel", cls.folder / "made",
                               *["--cuda"] * cls.cuda], capture_output=True, text=True, check=False)
        if made.returncode == 3:
            raise unittest.SkipTest(f"no source of SentencePiece: {made.stderr.strip()[-200:]}")
        if made.returncode != 0:
            raise AssertionError(made.stderr)
        cls.wheel, *cls.others = map(Path, made.stdout.split())

    def environment(self, name):
        """A new environment's python3, and variables with which no compiler and nothing of this
        clone is found."""
        place = self.folder / name
        venv.create(place, with_pip=True)
        inherited = {key: value for key, value in os.environ.items()
                     if key not in ("PYTHONPATH", "LD_LIBRARY_PATH", "STASIS_LIBRARY")}
        return place / "bin", dict(inherited, PATH=str(place / "bin"))

    def ok(self, *words, **process):
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False,
                              timeout=300, cwd=self.folder, **process)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def test_the_first_minutes(self):
        """pip install and python -m stasis chat, in under ten seconds."""
        programs, variables = self.environment("first")
        begin = time.monotonic()
        self.ok(programs / "python3", "-m", "pip", "install", "--no-index", "-q", self.wheel,
                env=variables)
        out = self.ok(programs / "python3", "-m", "stasis", "chat", GEMMA, "--temperature", "0",
                      input=FIRST["user"] + "\n", env=variables)
        seconds = time.monotonic() - begin
        self.assertIn(FIRST["reply"], out)
        self.assertLess(seconds, SECONDS_MAX)
        print(f"pip install and a first reply: {seconds:.1f} s")
        self.assertIn(FIRST["reply"],
                      self.ok(programs / "stasis", "chat", GEMMA, "--temperature", "0",
                              input=FIRST["user"] + "\n", env=variables))
        said = self.ok(programs / "python3", "-c", PROGRAM, GEMMA, FIRST["user"],
                       env=variables).splitlines()
        self.assertEqual(said[0], FIRST["reply"])
        self.assertEqual(said[1],
                         "60a1157e41d795dd7dafee5c4ed90d555c40ce4f95c73ac73c9e546d171bb913")
        self.assertTrue(said[2].startswith(str((self.folder / "first").resolve())), said[2])
        self.assertEqual(said[3], "[]")  # nothing of the system's
        self.ok(programs / "python3", "-m", "pip", "uninstall", "-q", "-y", "stasis",
                env=variables)
        self.assertEqual(list((self.folder / "first").rglob("*stasis*")), [])

    def test_stores_in_object_storage(self):
        """The module, its libcurl and its TLS came along; who answers must be believed."""
        programs, variables = self.environment("objects")
        variables = {key: value for key, value in variables.items() if key != "SSL_CERT_FILE"}
        variables.update(AWS_ACCESS_KEY_ID=seaweedfs.ACCESS,
                         AWS_SECRET_ACCESS_KEY=seaweedfs.SECRET)
        self.ok(programs / "python3", "-m", "pip", "install", "--no-index", "-q", self.wheel,
                env=variables)
        certificate = self.folder / "certificate.pem"
        self.ok("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "2", "-subj", "/CN=stasis", "-addext",
                "subjectAltName=IP:127.0.0.1", "-keyout", certificate, "-out",
                self.folder / "public.pem")
        with open(certificate, "a", encoding="utf-8") as both:
            both.write((self.folder / "public.pem").read_text(encoding="utf-8"))
        plain, tls = TroubledService(self), TroubledService(self, certificate)
        believed = dict(variables, SSL_CERT_FILE=str(self.folder / "public.pem"))
        for uri, env in ((plain.uri, variables), (tls.uri, believed)):
            done, module, systems = self.ok(programs / "python3", "-c", STORE, GEMMA, uri,
                                            env=env).splitlines()
            self.assertEqual(done, "True ['talk']")
            self.assertTrue(module.startswith(str((self.folder / "objects").resolve())), module)
            self.assertEqual(systems, "[]")
            self.assertIn("talk", self.ok(programs / "stasis", "store", uri, "list", env=env))
        refused = subprocess.run([programs / "stasis", "store", tls.uri, "list"], env=variables,
                                 capture_output=True, text=True, timeout=300, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("certificate", refused.stderr)

    def test_what_is_in_it(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            self.assertIn("stasis/lib/libstasis.so.0", names)
            self.assertIn("stasis/lib/libstasis_s3.so.0", names)
            self.assertIn("stasis/py.typed", names)
            for path in (ROOT / "bindings/python/stasis").glob("*.py"):
                self.assertEqual(archive.read(f"stasis/{path.name}"), path.read_bytes())
            metadata = archive.read([name for name in names if name.endswith("METADATA")][0])
            self.assertIn(b"Requires-Python: >=3.9", metadata)
            self.assertNotIn(b"Requires-Dist", metadata)
            licences = [name for name in names if "/licenses/" in name]
            self.assertGreater(len(licences), 10)
        size = self.wheel.stat().st_size
        print(f"the wheel has {size} bytes")
        self.assertLess(size, 16e6)

    def test_auditwheel_agrees(self):
        tools = self.folder / "tools"
        venv.create(tools, with_pip=True)
        done = subprocess.run([tools / "bin/python3", "-m", "pip", "install", "-q", "--retries",
                               "1", "auditwheel==6.8.2"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            self.skipTest(f"auditwheel cannot be had: {done.stderr.strip()[-200:]}")
        for wheel in (self.wheel, *self.others):
            said = " ".join(self.ok(tools / "bin/auditwheel", "show", wheel).split())
            tag = r"manylinux_2_(\d+)_x86_64"
            found = re.search(rf'is consistent with the following platform tag: "{tag}"', said)
            self.assertIsNotNone(found, said)
            self.assertLessEqual(int(found[1]), int(re.search(tag, wheel.name)[1]))

    def test_the_module_for_gpus(self):
        """Beside the package it is found and opened; without a GPU the driver is missing."""
        if not self.cuda:
            self.skipTest("the wheel of the CUDA module is made with --all, where nvcc is")
        programs, variables = self.environment("gpu")
        ask = [programs / "python3", "-c", "import stasis, sys\ntry:\n"
               "    print(stasis.Model(sys.argv[1], device='cuda').info.device)\n"
               "except stasis.DeviceError as problem:\n    print(problem)", GEMMA]
        answers = []
        for wheel in (self.wheel, *self.others):
            self.ok(programs / "python3", "-m", "pip", "install", "--no-index", "-q", wheel,
                    env=variables)
            answers.append(self.ok(*ask, env=variables))
        self.assertIn("libstasis_cuda", answers[0])
        self.assertNotIn("libstasis_cuda", answers[1])


if __name__ == "__main__":
    unittest.main()
