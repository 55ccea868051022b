# stasis serve and long histories: what is stored is read, not computed again, in the same process,
# after a restart, and by another server over the same store.
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import time

from served import ServerTest
from stasis_process import LLAMA, turns_of

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SHARED = 8000
HISTORY = 100000 if "STASIS_TEST_ALL" in os.environ else 10000


def lengthen(model):
    """Makes a model of its first layer, without a limit that matters: fast, if it says nothing."""
    config = json.loads((model / "config.json").read_text())
    config.update(max_position_embeddings=200000, num_hidden_layers=1)
    (model / "config.json").write_text(json.dumps(config))
    data = (model / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header, kept = {}, b""
    for name, tensor in json.loads(data[8:begin]).items():
        if name != "__metadata__" and int((re.findall(r"layers\.(\d+)", name) or [0])[0]) < 1:
            first, last = tensor["data_offsets"]
            header[name] = dict(tensor, data_offsets=[len(kept), len(kept) + last - first])
            kept += data[begin + first:begin + last]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + kept)


class Long(ServerTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "long"
        shutil.copytree(LLAMA, self.model)
        lengthen(self.model)
        self.uri = f"dir:{self.path('store')}"

    def begin(self):
        return self.serve(self.model, "--store", self.uri)

    def text(self, server, tokens, seed):
        """A text of at least so many tokens, and not many more."""
        users = [turn["user"] for turn in turns_of(LLAMA)]
        words = [f"{users[(seed + i) % len(users)]} ({seed}, {i})" for i in range(tokens)]

        def count(number):
            body = {"messages": [{"role": "user", "content": " ".join(words[:number])}]}
            return self.post(server, "/v1/messages/count_tokens", body)["input_tokens"]

        number = 64 * tokens // count(64) + 8
        self.assertGreaterEqual(count(number), tokens)
        return " ".join(words[:number])

    def spent(self, server, ask):
        """What a request gave; the positions and the passes that it computed; the seconds."""
        def measured():
            metrics = self.metrics(server)
            return (metrics["stasis_prompt_tokens_total"] - metrics["stasis_cached_tokens_total"],
                    metrics["stasis_passes_total"])

        before, began = measured(), time.monotonic()
        reply = ask()
        seconds = time.monotonic() - began
        return reply, *(after - then for after, then in zip(measured(), before)), seconds

    def test_a_beginning_of_8000_tokens(self):
        server = self.begin()
        system = {"role": "system", "content": self.text(server, SHARED, 1)}
        users = [turn["user"] for turn in turns_of(LLAMA)]
        asked = iter(range(1000000))

        def ask(where):
            messages = [system, {"role": "user", "content": f"{users[0]} {next(asked)}"}]
            return self.spent(where, lambda: self.post(where, CHAT, {
                "messages": messages, "max_tokens": 2})["usage"])

        usage, computed, passes, _ = ask(server)
        self.assertGreater(usage["prompt_tokens"], SHARED)
        self.assertEqual(computed, usage["prompt_tokens"])
        most = passes // 2
        limit = time.monotonic() + 60
        other = self.begin()
        for where in server, other:  # where it was computed, and another over the store
            while (found := ask(where))[1] > 200:  # until the beginning has its name
                self.assertLess(time.monotonic(), limit)
            self.assertGreaterEqual(found[0]["prompt_tokens_details"]["cached_tokens"], SHARED)
            self.assertLess(found[2], most)
        server.kill()
        other.kill()
        again = ask(self.begin())
        self.assertGreaterEqual(again[0]["prompt_tokens_details"]["cached_tokens"], SHARED)
        self.assertLess(again[2], most)

    def test_a_long_history_is_read(self):
        server, before = self.begin(), None
        alone = self.serve(self.model)  # is never asked to go on from a store
        say = lambda where, text, previous: self.post(where, RESPONSES, {
            "input": text, "previous_response_id": previous, "max_output_tokens": 4})
        for part in range(4):
            text = self.text(server, HISTORY // 4, part)
            there = before and before["id"]
            before = say(server, text, there)
            self.assertEqual(say(alone, text, there)["id"], before["id"])
        self.assertGreater(before["usage"]["input_tokens"], HISTORY)
        server.kill()
        server = self.begin()
        name = before["id"].removeprefix("resp_")
        session, *spent, read = self.spent(server, lambda: self.get(
            server, f"/v1/sessions/{name}"))
        self.assertEqual((session["position"], *spent), (before["usage"]["total_tokens"], 0, 0))
        server.kill()
        server = self.begin()
        after, computed, passes, resumed = self.spent(
            server, lambda: say(server, "And?", before["id"]))
        self.assertLess(computed, 100)
        self.assertLess(passes, 12)
        self.assertEqual(say(alone, "And?", before["id"])["id"], after["id"])
        began, size = time.monotonic(), 0
        for path in pathlib.Path(self.path("store"), "objects").rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                size += len(data)
                hashlib.sha256(data).digest()
        print(f"{session['position']} tokens after a restart: {read:.2f} s to read them, "
              f"{resumed:.2f} s for a turn more, with {computed:.0f} positions computed; "
              f"{time.monotonic() - began:.2f} s to read and hash all {size >> 20} MiB stored")
