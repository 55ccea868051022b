# stasis serve: what sessions take in a store. Bytes are counted, of the objects that a turn leaves
# there: those of payloads (keys and values, long texts), of segments and of roots.
import os

from served import ServerTest
from stasis_process import LLAMA, turns_of

RESPONSES = "/v1/responses"
POSITION_BYTES = 2 * 8 * 2 * 32 * 2  # keys and values, layers, heads, numbers, bytes of a bf16
PAGE = 64
SEGMENT = b"\x89STSEG\r\n"


def users():
    return [turn["user"] for turn in turns_of(LLAMA)]


class Bytes(ServerTest):
    def written(self, store, before):
        """Bytes of what is new in a store since the files `before`, which is brought up to date."""
        payloads, others = 0, 0
        for folder, folders, names in os.walk(store):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                if name.startswith("."):
                    continue
                path = os.path.join(folder, name)
                status = os.stat(path)
                if before.get(path) == status.st_mtime_ns:
                    continue
                before[path] = status.st_mtime_ns
                with open(path, "rb") as file:
                    record = "/roots/" in path or file.read(8) == SEGMENT
                if record:
                    others += status.st_size
                else:
                    payloads += status.st_size
        return payloads, others

    def respond(self, server, text, before=None, **members):
        return self.post(server, RESPONSES, {"input": text, "max_output_tokens": 24, "seed": 1,
                                             "previous_response_id": before, **members})

    def test_many_sessions_hold_their_beginning_once(self):
        store = self.path("store")
        options = LLAMA, "--store", f"dir:{store}"
        server = self.serve(*options)
        system, files, kept = " ".join(users() * 12), {}, []
        self.assertGreater(len(system), 4096)  # in a store it is an object of its own then
        for i in range(16):
            if i in (1, 8):  # the beginning is named before the end, and not in memory after it
                self.assertEqual(server.end(), 0)
                server = self.serve(*options)
            response = self.respond(server, f"{i} and {i * 7}: {users()[i % 5]}",
                                    instructions=system)
            usage = response["usage"]
            own = usage["total_tokens"] - usage["input_tokens_details"]["cached_tokens"]
            payloads, others = self.written(store, files)
            if i == 0:
                self.assertGreaterEqual(payloads, usage["input_tokens"] * POSITION_BYTES)
                continue
            # The second one parts from the first within a page and writes what is before it there.
            self.assertLess(own, 200)
            parted = PAGE if i == 1 else 0
            self.assertLessEqual(payloads, (own + parted) * POSITION_BYTES)
            kept.append(others)
        # The log, tables and texts of what is common are written by the second one too, and then by
        # none; the conversation and the response are each one's own.
        self.assertLess(kept[0], 45000)
        self.assertLess(max(kept[1:]), 13000)

    def test_a_turn_writes_its_own(self):
        store = self.path("store")
        server = self.serve(LLAMA, "--store", f"dir:{store}")
        files, before, computed, written = {}, None, 0, 0
        for i in range(9):
            text = f"{i}: " + " ".join(users()[(i + j) % len(users())] for j in range(8))
            response = self.respond(server, text, before, instructions=" ".join(users() * 12))
            before, usage = response["id"], response["usage"]
            own = usage["total_tokens"] - usage["input_tokens_details"]["cached_tokens"]
            payloads, others = self.written(store, files)
            if i > 0:
                self.assertGreater(own, 150)
                # Each row once, also of a page that the turn before has begun; and at most a piece
                # of the conversation and one of the response that are long enough for a payload.
                self.assertLessEqual(payloads, own * POSITION_BYTES + 2 * 4096 + 2048)
                computed += own * POSITION_BYTES
                written += payloads + others
        self.assertLess(written, 1.1 * computed)
