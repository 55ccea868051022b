# Stores in object storage (libstasis_s3), in a real service: SeaweedFS, as tools/get_seaweedfs
# fetches it. The module's behaviour in trouble is tested in tests/modules.
import os
import pathlib
import random
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import seaweedfs
from stasis_process import CommandTest, GEMMA, LLAMA, comma, command


class Refused(CommandTest):
    def test_without_credentials(self):
        self.refused("store", "s3://bucket/p", "list", names=["AWS_ACCESS_KEY_ID"],
                     before=lambda: os.environ.pop("AWS_ACCESS_KEY_ID", None))
        self.refused("store", "s3://b", "list", names=["no bucket's name"])

    def test_where_the_module_is_not_installed(self):
        library = command().parent / "abi/libstasis.so.0"
        (self.folder / "bin").mkdir()
        shutil.copy(library, self.folder / "bin/libstasis.so.0")
        done = subprocess.run([command(), "store", "s3://bucket/p", "list"], capture_output=True,
                              text=True, check=False,
                              env={**os.environ, "LD_LIBRARY_PATH": self.path("bin")})
        if "AWS_ACCESS_KEY_ID" in done.stderr:
            self.skipTest("this command finds its own library before LD_LIBRARY_PATH's")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the module libstasis_s3.so.0 is not installed", done.stderr)
        self.assertIn("UNSUPPORTED", done.stderr)


class S3(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.service = seaweedfs.start(cls)
        os.environ.update(AWS_ACCESS_KEY_ID=seaweedfs.ACCESS,
                          AWS_SECRET_ACCESS_KEY=seaweedfs.SECRET)
        cls.addClassCleanup(lambda: [os.environ.pop(name) for name in (
            "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")])

    def setUp(self):
        super().setUp()
        self.uri = self.service.uri(self.id().rsplit(".", 1)[1])

    def save(self, name, model, tokens):
        return self.json("run", model, "--tokens", comma(tokens), "-n", 0, "--save",
                         self.path(name))["digest"]

    def names(self):
        return {session["name"]: session["position"]
                for session in self.json("store", self.uri, "list")["sessions"]}

    def put_in_place(self, path, name):
        """The service may still be at the last request of a process that was killed: a CONFLICT
        then, as with any other writer."""
        for _ in range(20):
            done = self.run_command("store", self.uri, "import", self.path(path), name,
                                    "--overwrite")
            if done.returncode == 0:
                return
            self.assertIn(b"CONFLICT", done.stderr)
        self.fail(done.stderr)

    def same(self, name, path):
        self.ok("store", self.uri, "export", name, self.path("out"), "--overwrite")
        self.assertEqual(pathlib.Path(self.path("out")).read_bytes(),
                         pathlib.Path(self.path(path)).read_bytes())

    def test_there_and_back(self):
        digest = self.save("a", GEMMA, range(3, 200))
        self.refused("store", self.uri, "list", names=["there is no store"])
        imported = self.json("store", self.uri, "import", self.path("a"), "my talk")
        self.assertEqual((imported["digest"], imported["shared_bytes"]), (digest, 0))
        again = self.json("store", self.uri, "import", self.path("a"), "again")
        self.assertGreater(again["shared_bytes"], 10 * again["written_bytes"])
        self.ok("store", self.uri, "fork", "my talk", "fork")
        self.assertEqual(self.names(), {"my talk": 197, "again": 197, "fork": 197})
        self.assertIn(f"my talk: 197 tokens, digest {digest}\n", self.ok("store", self.uri, "list"))
        self.same("fork", "a")
        self.ok("verify", self.path("out"), GEMMA)
        self.refused("store", self.uri, "remove", "none", names=["no session 'none'"])
        for name in "my talk", "again", "fork":
            self.ok("store", self.uri, "remove", name)
        # Without locks the age decides, and these are young.
        collected = self.json("store", self.uri, "collect")
        self.assertEqual((collected["sessions"], collected["removed_objects"]), (0, 0))
        self.assertGreater(collected["objects"], 2)
        self.assertEqual(self.names(), {})

    def test_refusals(self):
        self.save("a", GEMMA, range(3, 50))
        self.save("b", LLAMA, range(3, 60))
        self.ok("store", self.uri, "import", self.path("a"), "s")
        self.refused("store", self.uri, "import", self.path("b"), "s", names=["CONFLICT"])
        self.same("s", "a")
        self.ok("store", self.uri, "import", self.path("b"), "s", "--overwrite")
        self.same("s", "b")
        message = self.refused("store", self.uri, "list", before=lambda: os.environ.update(
            AWS_SECRET_ACCESS_KEY="a wrong one"), names=["403", "SignatureDoesNotMatch"])
        self.assertNotIn("a wrong one", message)
        self.refused("store", self.uri.replace("sessions", "others"), "list",
                     names=["404", "NoSuchBucket"])
        self.refused("store", self.service.uri(""), "import", self.path("a"), "s",
                     names=["not empty"])

    def test_of_processes_that_race_for_a_name_one_wins(self):
        digests = [self.save(str(i), GEMMA, range(3 + i, 20 + i)) for i in range(4)]
        self.ok("store", self.uri, "import", self.path("0"), "first")  # makes the store
        for round_ in range(5):
            with ThreadPoolExecutor(4) as pool:
                done = list(pool.map(lambda i, name=f"r{round_}": self.run_command(
                    "store", self.uri, "import", self.path(str(i)), name), range(4)))
            winners = [i for i, each in enumerate(done) if each.returncode == 0]
            self.assertEqual(len(winners), 1, [each.stderr for each in done])
            for i, each in enumerate(done):
                self.assertIn(b"CONFLICT" if i != winners[0] else b"", each.stderr)
            stored = {session["name"]: session["digest"]
                      for session in self.json("store", self.uri, "list")["sessions"]}
            self.assertEqual(stored[f"r{round_}"], digests[winners[0]])

    def test_of_processes_that_make_a_store_all_succeed(self):
        self.save("a", GEMMA, range(3, 20))
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda i: self.run_command(
                "store", self.uri, "import", self.path("a"), f"n{i}"), range(4)))
        self.assertEqual([each.returncode for each in done], [0] * 4, done)
        self.assertEqual(sorted(self.names()), ["n0", "n1", "n2", "n3"])

    def test_a_writer_that_is_killed_leaves_all_or_nothing(self):
        self.save("a", GEMMA, range(3, 400))
        self.save("b", GEMMA, range(4, 400))
        self.ok("store", self.uri, "import", self.path("a"), "kept")
        seconds = random.Random(int(os.environ.get("STASIS_TEST_SEED", 0)))
        for round_ in range(10):  # at any moment: each is as good as the others
            process = subprocess.Popen([command(), "store", self.uri, "import", self.path("b"),
                                        f"k{round_}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            try:
                time.sleep(seconds.uniform(0, 0.05))
            finally:
                process.kill()
                process.wait()
            for name, position in self.names().items():
                self.assertEqual(position, 397 if name == "kept" else 396)
            self.put_in_place("b", f"k{round_}")
            self.same(f"k{round_}", "b")
        self.same("kept", "a")
