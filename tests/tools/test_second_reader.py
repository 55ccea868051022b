# A reader written from FORMAT.md alone says about every kind of file what the library says, and
# refuses what it refuses: plain damage, and changes whose checksums were made right again.
import hashlib
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

from stasis_process import DATA, GEMMA, LLAMA, ROOT, CommandTest, all_tokens, comma

sys.path.insert(0, str(ROOT / "tests/format"))
import reseal  # noqa: E402
import second_reader  # noqa: E402
from reader.container import FIRST_SECTION, checksum  # noqa: E402
from reader.xxh3 import xxh3_64, xxh3_128  # noqa: E402

READER = ROOT / "tests/format/second_reader.py"
FLIPS, FORGERIES = 60, 80
BITS = [0, 1, 2, 0x3F800000, 0x7F800000, 0x7FC00000, 0xFF800000, 0xFFFFFFFF]


def without(found, *names):
    return {name: value for name, value in found.items() if name not in names}


def as_inspect(found):
    """What the second reader says, as far as `stasis inspect --json` says it too, in its places."""
    file, elements = found["file"], dict(found["elements"])
    cache = elements["kv_cache"]
    log = elements["input_token_buffer"]["log"]
    sources = [entry["source"] for entry in log]
    elements["kv_cache"] = {**cache, "pages": [
        {**without(page, "digest_checked", "fingerprints"),
         "runs": [without(run, "codec") for run in page["runs"]]} for page in cache["pages"]]}
    if "recurrent" in cache:
        states = [without(state, "digest_checked") for state in cache["recurrent"]["states"]]
        elements["kv_cache"]["recurrent"] = {**cache["recurrent"], "states": states}
    texts = {each["token"]: bytes.fromhex(each["bytes"])
             for each in elements["input_token_buffer"]["texts"]}
    elements["input_token_buffer"] = {
        "tokens": len(log),
        "sources": {name: sources.count(name) for name in second_reader.SOURCES}}
    text = b"".join(texts.get(entry["token"], b"") for entry in log)
    return {
        "format": second_reader.VERSION, "elements": elements, "sections": found["sections"],
        "data": found["data"], "spans": elements["prompt_injection_meta"]["spans"],
        "text": text.decode("utf-8", "replace"),
        "file": {"bytes": file["bytes"], "commits": file["commits"], "keep": cache["keep"],
                 "older": file["older"],
                 "root_damaged": any(slot["state"] == "damaged" for slot in file["slots"])},
        **{name: found[name] for name in ("position", "digest", "root")},
    }


def pages_of(found, group=0):
    return [page for page in found["elements"]["kv_cache"]["pages"] if page["group"] == group]


class SecondReader(CommandTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0o077))  # others may not read: else commits replace

    def save(self, name, model, tokens, *options):
        """Saves, or commits to, a file of this name."""
        path = self.path(name)
        resume = ["--resume", path, "--rewind", 0] if os.path.exists(path) else []
        self.ok("run", model, *resume, "--tokens", comma(tokens), "-n", 0, "--save", path, *options)
        return path

    def stream(self, name, model, *options):
        with open(self.path(name), "wb") as file:
            self.ok_into(file, "run", model, *options, "--save", "-")
        return self.path(name)

    def ok_into(self, file, *arguments):
        done = self.run_command(*arguments, stdout=file)
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def contains(self, whole, part, where):
        """Every field of `part` is in `whole` with the same value."""
        if isinstance(part, dict):
            for name, value in part.items():
                self.assertIn(name, whole, where)
                self.contains(whole[name], value, f"{where}.{name}")
        elif isinstance(part, list):
            self.assertEqual(len(whole), len(part), where)
            for i, value in enumerate(part):
                self.contains(whole[i], value, f"{where}[{i}]")
        else:
            self.assertEqual(whole, part, where)

    def agree(self, path):
        done = subprocess.run([sys.executable, READER, path], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        found = json.loads(done.stdout)
        self.contains(self.json("inspect", path), as_inspect(found), path)
        return found

    def test_hashes(self):
        """Against the XXH3 library (0.8.1) by one digest over hashes of all sizes with a case."""
        pattern = bytes((i * 131 + i // 256 * 7) % 256 for i in range(5000))
        digest = hashlib.sha256()
        for size in [*range(1300), 2047, 2048, 2049, 5000]:
            content = pattern[:size]
            digest.update(struct.pack("<3Q", *xxh3_128(content), xxh3_64(content)))
        self.assertEqual(digest.hexdigest(),
                         "08b41fd27740ddcb87372e5dea2d05abc04cbb7667d5a2def7e9eb7dab3411e4")

    def test_evictions(self):
        for model in LLAMA, GEMMA:
            tokens = all_tokens(model)
            path = self.save(model.name + "e", model, tokens[:150], "--evict", "5:80")
            self.ok("run", model, "--resume", path, "--tokens", comma(tokens[150:200]), "-n", 9,
                    "--evict", "0:128", "--evict", "130:131", "--save", path)
            found = self.agree(path)
            self.assertEqual(found["file"]["features"], [0, 0, 1])
            self.assertEqual(found["elements"]["attention_mask"]["evicted"],
                             [{"position": 150, "ranges": [[5, 80]]},
                              {"position": 200, "ranges": [[0, 5], [80, 128], [130, 131]]}])
            self.assertEqual([len(page["runs"]) > 0 for page in pages_of(found)][:3],
                             [False, False, True])
            self.ok("verify", path, model)

    def test_saves_and_commits(self):
        for model in LLAMA, GEMMA:
            tokens = all_tokens(model)
            path = self.save(model.name, model, tokens[:100])
            self.assertEqual(self.agree(path)["file"]["slots"][1]["state"], "empty")
            for count in 101, 130, 300:  # grows
                self.save(model.name, model, tokens[:count])
            grown = self.agree(path)
            self.assertEqual(grown["file"]["commits"], 4)
            self.assertEqual([slot["state"] for slot in grown["file"]["slots"]], ["good", "good"])
            self.assertEqual([len(page["runs"]) for page in pages_of(grown)], [1, 3, 2, 1, 1])
            self.assertTrue(all(page["digest_checked"] or not page["runs"]
                                for page in grown["elements"]["kv_cache"]["pages"]))
            self.save(model.name, model, tokens[:110])  # rewinds
            rewound = self.agree(path)
            self.assertEqual((rewound["position"], rewound["file"]["commits"]), (110, 5))
            self.save(model.name, model, tokens[:90] + [9, 8, 7], "--codec", "zstd")  # forks
            codecs = {run["codec"] for page in pages_of(self.agree(path)) for run in page["runs"]}
            self.assertEqual(codecs, {"raw", "zstd"})
            self.ok("compact", path, "--codec", "raw")
            self.assertEqual(self.agree(path)["file"]["commits"], 1)

    def test_released_pages(self):
        found = self.agree(self.save("s", GEMMA, all_tokens(GEMMA)[:300]))
        self.assertEqual([bool(page["runs"]) for page in pages_of(found, 1)],
                         [False, False, True, True, True])

    def test_zstd_and_none(self):
        for model in LLAMA, GEMMA:
            tokens = all_tokens(model)[:200]
            coded = self.agree(self.save(model.name + "z", model, tokens, "--codec", "zstd"))
            stored = [page for page in coded["elements"]["kv_cache"]["pages"] if page["runs"]]
            self.assertEqual({run["codec"] for page in stored for run in page["runs"]}, {"zstd"})
            self.assertFalse(any(page["digest_checked"] for page in stored))
            none = self.agree(self.save(model.name + "n", model, tokens, "--keep", "none"))
            self.assertTrue(pages_of(none)[0]["fingerprints"])
            self.assertEqual(coded["digest"], none["digest"])

    def test_chat(self):
        """Roles, texts of messages, samplings: a conversation that was drawn under two settings."""
        for model in LLAMA, GEMMA:
            path = self.path(model.name)
            self.chat(model, ["hello"], "--session", path, "--temperature", 0.8)
            self.chat(model, ["again"], "--session", path, "--temperature", 0.5, "--seed", 4)
            found = self.agree(path)
            self.assertEqual(len(found["elements"]["model_config"]["samplings"]), 2)
            self.assertIn("user", {span["role"] for span
                                   in found["elements"]["prompt_injection_meta"]["spans"]})

    def test_settings_of_version_2(self):
        path = self.path("s")
        self.chat(LLAMA, ["hello"], "--session", path, "--temperature", 0.8)
        features = [0, 0, 0]
        self.assertEqual(self.agree(path)["file"]["features"], features)
        self.chat(LLAMA, ["again"], "--session", path, "--temperature", 0.8, "--typical-p", 0.9,
                  "--dry-multiplier", 0.8, "--dry-breakers", "9,4,9", "--xtc-probability", 0.5)
        found = self.agree(path)
        self.assertEqual(found["file"]["features"], [0, 1, 0])
        self.assertEqual(found["elements"]["kv_format_version"]["contract"]["sampling"], 2)
        first, second = found["elements"]["model_config"]["samplings"]
        self.assertEqual((first["typical_p"], first["dry_breakers"]), (1, []))
        self.assertEqual((second["dry_base"], second["dry_breakers"]), (1.75, [4, 9]))

    def test_stream(self):
        tokens = comma(all_tokens(GEMMA)[:100])
        path = self.stream("s", GEMMA, "--tokens", tokens, "-n", 3)
        found = self.agree(path)
        self.assertTrue(found["file"]["stream"])
        self.ok("run", GEMMA, "--resume", path, "--tokens", "5,6", "-n", 0, "--save", path)
        grown = self.agree(path)
        self.assertEqual((grown["file"]["stream"], grown["file"]["commits"]), (False, 2))

    def small_files(self):
        tokens = all_tokens(LLAMA)
        committed = self.save("committed", LLAMA, tokens[:4])
        self.save("committed", LLAMA, tokens[:6])
        self.save("committed", LLAMA, tokens[:3])
        drawn = ["--tokens", comma(tokens[:4]), "-n", 3, "--ignore-eos", "--temperature", 0.9]
        streamed = self.stream("streamed", LLAMA, *drawn)
        return [committed, streamed, self.save("zstd", LLAMA, tokens[:6], "--codec", "zstd"),
                self.save("none", GEMMA, tokens[:70], "--keep", "none")]

    def second(self, data):
        """What the second reader makes of these bytes: position and state digest, or None."""
        try:
            found = second_reader.read_bytes(data)
        except second_reader.Refused:
            return None
        return found["position"], found["digest"]

    def first(self, data, *call):
        """The same of the command, asked by this call; "FILE" stands for the file."""
        path = pathlib.Path(self.path("changed"))
        path.write_bytes(data)
        done = self.run_command(*[path if each == "FILE" else each for each in call], "--json")
        self.assertIn(done.returncode, (0, 2), done.stderr.decode())
        if done.returncode:
            return None
        found = json.loads(done.stdout)
        return found.get("position"), found.get("digest")

    def test_flipped_bits(self):
        seed = random.randrange(1 << 32)
        print(f"          seed of flips: {seed}")
        chance = random.Random(seed)
        for path in self.small_files():
            model = GEMMA if path.endswith("none") else LLAMA
            data = pathlib.Path(path).read_bytes()
            refused = 0
            for _ in range(FLIPS):
                at = chance.randrange(chance.choice([0, FIRST_SECTION]), len(data))
                flipped = bytearray(data)
                flipped[at] ^= 1 << chance.randrange(8)
                verdict = self.second(bytes(flipped))
                self.assertEqual(
                    verdict, self.first(flipped, "run", model, "--resume", "FILE", "-n", 0,
                                        "--accept-older"),
                    f"{path}: byte {at}, seed {seed}")
                refused += verdict is None
            self.assertGreater(refused, FLIPS // 3, path)

    def test_forgeries(self):
        """Numbers changed where they mean something, all checksums right."""
        seed = random.randrange(1 << 32)
        print(f"          seed of forgeries: {seed}")
        chance = random.Random(seed)
        for path in self.small_files():
            snapshot = reseal.Snapshot(pathlib.Path(path).read_bytes())
            for _ in range(FORGERIES):
                at = chance.choice(chance.choice(snapshot.places()))
                if snapshot.in_coded_run(at):
                    continue  # whether a checksum of raw bytes is right is known after decoding
                change = self.some_change(chance, snapshot.data, at)
                forged = snapshot.changed(at, change)
                where = f"{path}: {change.hex()} at {at}, seed {seed}"
                inspected = self.first(forged, "inspect", "FILE")
                compacted = inspected and self.first(forged, "compact", "FILE")  # reads pages, too
                if snapshot.changes_digest_of_coded_page(forged):
                    self.assertIsNone(compacted, where)  # the second reader does not decode
                elif snapshot.forbids_writing(forged):
                    self.assertIsNone(compacted, where)
                    self.assertEqual(self.second(forged), inspected, where)
                else:
                    self.assertEqual(self.second(forged), compacted and inspected, where)

    def some_change(self, chance, data, at):
        which = chance.randrange(3)
        if which == 0:
            return bytes([data[at] ^ 1 << chance.randrange(8)])
        if which == 1:
            return struct.pack("<I", chance.choice(BITS))
        return struct.pack("<Q", chance.choice([0, 1, 1 << 63, (1 << 64) - 1, 64 * at]))

    def test_golden_files(self):
        """Their bytes are those that were made, and say what was recorded then."""
        files = json.loads((DATA / "golden/v1/golden.json").read_text())
        self.assertEqual({file["name"] for file in files} | {"golden.json"},
                         {path.name for path in (DATA / "golden/v1").iterdir()})
        for file in files:
            path = DATA / "golden/v1" / file["name"]
            self.assertEqual(hashlib.sha256(path.read_bytes()).hexdigest(), file["sha256"], path)
            self.contains(self.agree(path), {name: file[name] for name in
                                             ("position", "digest", "root")}, path)

    def check_golden_files(self, folder):
        files = json.loads((folder / "golden.json").read_text())
        self.assertEqual({file["name"] for file in files} | {"golden.json"},
                         {path.name for path in folder.iterdir()})
        for file in files:
            path = folder / file["name"]
            self.assertEqual(hashlib.sha256(path.read_bytes()).hexdigest(), file["sha256"], path)
            found = self.agree(path)
            self.contains(found, {name: file[name] for name in ("position", "digest", "root")},
                          path)
            self.assertEqual(found["file"]["features"][2], file["features"], path)
            cache = found["elements"]["kv_cache"]
            states = cache.get("recurrent", {"states": []})["states"]
            self.assertEqual([state["position"] for state in states], file["states"], path)
            coded = any(each["codec"] == "zstd" for each in found["sections"]
                        if each["name"] == "recurrent")
            self.assertEqual({state["digest_checked"] for state in states},
                             {not coded and cache["keep"] == "full"} if states else set(), path)

    def test_golden_files_of_recurrent_layers(self):
        self.check_golden_files(DATA / "golden/recurrent")

    def test_golden_files_of_constraints(self):
        folder = DATA / "golden/constraints"
        self.check_golden_files(folder)
        config = self.agree(folder / "replies.stasis")["elements"]["model_config"]
        self.assertEqual([each["kind"] for each in config["constraints"]],
                         ["regex", "json_schema"])
        self.assertEqual([each.get("constraint") for each in config["samplings"]], [0, None, 1])
        found = self.agree(folder / "sets.stasis")
        self.assertEqual(found["file"]["features"], [0, 2, 0])
        sets = [each["allowed"] for each in found["elements"]["model_config"]["samplings"]]
        self.assertEqual(len(sets), 10)  # equal ones once
        self.assertEqual({len(each) > 200 for each in sets}, {True, False})  # bits, and runs

    def test_golden_files_of_layers_that_differ(self):
        self.check_golden_files(DATA / "golden/layers")
        found = self.agree(DATA / "golden/layers/hybrid.stasis")
        cache = found["elements"]["kv_cache"]
        self.assertEqual(cache["sharing"], [3, 5])
        self.assertEqual([(group["layers"], group["kv_heads"], group["head_dim"])
                          for group in cache["groups"]], [([1], 3, 10)])
        self.assertTrue(all(page["digest_checked"] for page in pages_of(found)))

    def test_golden_files_of_data(self):
        self.check_golden_files(DATA / "golden/data")
        found = self.agree(DATA / "golden/data/commits.stasis")
        self.assertEqual(found["file"]["features"], [0, 4, 0])
        self.assertEqual(found["data"], [{"name": "a title", "bytes": 3},
                                         {"name": "no bytes", "bytes": 0},
                                         {"name": "\u00e9", "bytes": 300}])
        self.assertEqual([each["commit"] for each in found["sections"]
                          if each["name"].startswith("host_")], [1, 2, 2])
        shown = self.ok("inspect", DATA / "golden/data/commits.stasis")
        self.assertRegex(shown, r"data\n +name +bytes\n +a title +3\n +no bytes +0\n"
                                "  \u00e9 +300\n")

    def test_an_index_of_data_is_checked(self):
        """Every rule of the index, by both readers."""
        data = (DATA / "golden/data/stream.stasis").read_bytes()
        snapshot = reseal.Snapshot(data)
        state = second_reader.State(snapshot.container)
        index = state.manifest["host_data"]["offset"] + 64
        for at, change, why in (
                (index, struct.pack("<Q", 0), "0 entries"),
                (index, struct.pack("<Q", 1025), "1025 entries"),
                (index, struct.pack("<Q", 4), "its index ends early"),
                (index, struct.pack("<Q", 2), "bytes behind the names"),
                (index + 8, struct.pack("<Q", 0), "without a place"),
                (index + 16, struct.pack("<Q", 0), "a place of no bytes"),
                (index + 16, struct.pack("<Q", 1 << 40), "longer than the state"),
                (index + 56, struct.pack("<I", 0), "a name"),
                (index + 56, struct.pack("<I", 256), "a name"),
                (index + 60, bytes(1), "a name"),
                (index + 60, b"z", "names do not ascend"),
                (snapshot.root_at + 16, bytes(1), "data of hosts: the root's features")):
            forged = snapshot.changed(at, change)
            with self.assertRaisesRegex(second_reader.Refused, why):
                second_reader.read_bytes(forged)
            self.assertIsNone(self.first(forged, "inspect", "FILE"), why)

    def test_layers_that_differ_and_sharing_ones_are_checked(self):
        """A reader that took the sizes of the rest for those of a group, or the feature as told."""
        data = (DATA / "golden/layers/commits.stasis").read_bytes()
        snapshot = reseal.Snapshot(data)
        begin = snapshot.manifest.start
        own = data.index(struct.pack("<II", 3, 10), begin)  # kv_heads, head_dim
        sharing = data.index(struct.pack("<III", 2, 3, 4), begin)
        for at, change, why in (
                (own, struct.pack("<II", 3, 0), "a group of 3 KV heads of 0"),
                (own, struct.pack("<II", 0, 10), "a group of 0 KV heads of 10"),
                (own, struct.pack("<II", 65537, 10), "a group of 65537 KV heads"),
                (own, struct.pack("<II", 2, 4), "sizes of a group are those of the rest"),
                (own, struct.pack("<II", 0, 0), "raw bytes of run"),
                (own, struct.pack("<II", 3, 11), "raw bytes of run"),
                (sharing, struct.pack("<III", 2, 4, 3), "sharing layers do not ascend"),
                (sharing, struct.pack("<III", 2, 3, 3), "sharing layers do not ascend"),
                (sharing, struct.pack("<III", 2, 1, 4), "layers of the groups"),
                (sharing, struct.pack("<III", 2, 3, 5), "layers of the groups"),
                (sharing, struct.pack("<III", 1, 3, 4), "layers of the groups"),
                (snapshot.root_at + 24, bytes(1), "layers that differ, or not"),
                (snapshot.root_at + 24, b"\x40", "unknown features 0x40")):
            forged = snapshot.changed(at, change)
            with self.assertRaisesRegex(second_reader.Refused, why):
                second_reader.read_bytes(forged)
            inspected = self.first(forged, "inspect", "FILE")
            self.assertIsNone(inspected and self.first(forged, "compact", "FILE"), why)

    def test_forgeries_of_golden_files(self):
        """Flips as they are, and numbers changed with all checksums right."""
        seed = random.randrange(1 << 32)
        print(f"          seed of golden forgeries: {seed}")
        chance = random.Random(seed)
        for name in ("recurrent/commits", "recurrent/zstd", "recurrent/none", "layers/commits",
                     "layers/zstd", "layers/none", "layers/hybrid", "data/commits", "sets/none"):
            data = (DATA / f"golden/{name}.stasis").read_bytes()
            snapshot = reseal.Snapshot(data)
            for i in range(FORGERIES):
                at = chance.choice(chance.choice(snapshot.places()))
                if i % 2:
                    at = chance.randrange(FIRST_SECTION, len(data))
                    if snapshot.in_coded_run(at):
                        continue
                    forged = bytearray(data)
                    forged[at] ^= 1 << chance.randrange(8)
                    forged = bytes(forged)
                elif snapshot.in_coded_run(at):
                    continue
                else:
                    forged = snapshot.changed(at, self.some_change(chance, data, at))
                where = f"{name}: byte {at}, seed {seed}"
                inspected = self.first(forged, "inspect", "FILE")
                compacted = inspected and self.first(forged, "compact", "FILE")
                if snapshot.changes_digest_of_coded_page(forged) or (
                        snapshot.forbids_writing(forged)):
                    self.assertIsNone(compacted, where)
                else:
                    self.assertEqual(self.second(forged), compacted and inspected, where)

    def test_denormals_count_as_zero(self):
        snapshot = reseal.Snapshot((DATA / "golden/layers/zstd.stasis").read_bytes())
        manifest = second_reader.State(snapshot.container).manifest
        top = [(each["token"], each["value"]) for each in manifest["top"]]
        tiny, normal = 2.0 ** -149, 2.0 ** -126

        def packed(*best):  # a vector of the manifest
            entries = [struct.pack("<If", *each) for each in best]
            return struct.pack("<I", len(best)) + b"".join(entries)

        of_settings = struct.pack("<ff", 0.95, 0.05)  # top_p, min_p
        for old, new, taken in (
                (of_settings, struct.pack("<ff", 0.95, -tiny), True),
                (of_settings, struct.pack("<ff", 0.95, -normal), False),
                (of_settings, struct.pack("<ff", tiny, 0.05), False),
                (packed(*top), packed((3, -tiny), (4, tiny)), True),
                (packed(*top), packed((4, tiny), (3, -tiny)), False),
                (packed(*top), packed((4, float("nan"))), False)):
            forged = snapshot.changed(snapshot.data.index(old, snapshot.manifest.start), new)
            first, second = self.first(forged, "inspect", "FILE"), self.second(forged)
            self.assertEqual((first is not None, first), (taken, second), new.hex())

    def test_says_what_is_wrong(self):
        path = pathlib.Path(self.save("s", LLAMA, [1, 5, 7]))
        data = bytearray(path.read_bytes())
        run = next(each for each in self.agree(path)["sections"] if each["name"] == "run")
        data[run["offset"] + 64] ^= 1
        path.write_bytes(data)
        done = subprocess.run([sys.executable, READER, path], capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertRegex(done.stderr.decode(), r"\Asecond_reader: [^\n]+ group 0, page 0: checksum "
                         rf"of section at {run['offset']}\n\Z")

    def test_damaged_slot(self):
        path = pathlib.Path(self.save("s", LLAMA, [1, 5, 7]))
        self.save("s", LLAMA, [1, 5, 7, 9])
        whole = path.read_bytes()
        for at, position in (4096, 4), (8192, 3):
            data = bytearray(whole)
            data[at] ^= 1
            path.write_bytes(data)
            found = self.agree(path)
            self.assertEqual(found["position"], position)
            self.assertEqual(found["file"]["older"], position == 3)
            self.assertIn("damaged", [slot["state"] for slot in found["file"]["slots"]])

    def test_torn_slot(self):
        path = pathlib.Path(self.save("s", LLAMA, [1, 5, 7]))
        self.save("s", LLAMA, [1, 5, 7, 9])
        before = path.read_bytes()
        self.save("s", LLAMA, [1, 5, 7, 9, 11])
        whole = path.read_bytes()
        for sectors in (range(1, 8), range(7)):  # of slot A, those that commit 3 has written
            data = bytearray(whole)
            for sector in set(range(8)) - set(sectors):
                at = 4096 + 512 * sector
                data[at:at + 512] = before[at:at + 512]
            path.write_bytes(data)
            found = self.agree(path)
            self.assertEqual((found["position"], found["file"]["older"]), (4, False))
            self.assertIn("damaged", [slot["state"] for slot in found["file"]["slots"]])

    def test_slots_of_the_same_commit(self):
        path = pathlib.Path(self.save("s", LLAMA, [1, 5, 7]))
        self.save("s", LLAMA, [1, 5, 7, 9])
        data = bytearray(path.read_bytes())
        data[8192:8200] = data[4096:4104]
        data[12272:12288] = checksum(bytes(data[8192:12272]))
        self.assertIsNone(self.second(bytes(data)))
        self.assertIsNone(self.first(data, "inspect", "FILE"))
