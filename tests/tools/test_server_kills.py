# stasis serve, killed at any moment: after a restart over the same store, or at another server over
# it, each conversation goes on as if nothing had been, and at most the turn that ran is repeated.
import http.client
import math
import os
import random
import threading
import time

import seaweedfs
from served import ServerTest
from stasis_process import LLAMA, turns_of

KILLED = (OSError, http.client.HTTPException, ValueError)  # a cut line is no JSON


class Talks:
    """Conversations on threads of their own, each turn at any of the servers there are."""

    def __init__(self, count, turns):
        users = [turn["user"] for turn in turns_of(LLAMA)]
        self.bodies = [[{"input": f"{users[(i + j) % len(users)]} ({i})", "temperature": 1.5,
                         "seed": i, "max_output_tokens": 24} for j in range(turns)]
                       for i in range(count)]
        self.ids = [[] for _ in range(count)]
        self.changed = threading.Condition()
        self.servers, self.events, self.broken = [], 0, []
        self.start, self.kills, self.kill_at, self.rng = None, 0, 0, None
        self.repeated = 0  # turns that a kill cut

    def count(self):
        """An event came. Under the lock, so that each kill is at its event, however slow all is."""
        self.events += 1
        if self.kills and self.events >= self.kill_at:
            self.servers.pop(self.rng.randrange(len(self.servers))).kill()
            self.servers.append(self.start())  # which meets what the killed one has left
            self.kills -= 1
            self.kill_at = self.events + self.gap()
        self.changed.notify_all()

    def gap(self):
        """Events up to the next kill: some within a token's time, some after whole turns of all."""
        return int(math.exp(self.rng.uniform(
            0, math.log(25 * len(self.ids) / len(self.servers)))))

    def turn(self, server, index):
        ids = self.ids[index]
        body = dict(self.bodies[index][len(ids)], previous_response_id=ids[-1] if ids else None)
        for event in server.events("/v1/responses", body):
            if event["type"] in ("response.failed", "error"):
                raise AssertionError(event)
            with self.changed:
                if event["type"] in ("response.completed", "response.incomplete"):
                    ids.append(event["response"]["id"])
                self.count()

    def talk(self, index):
        rng = random.Random(index)
        try:
            while len(self.ids[index]) < len(self.bodies[index]):
                with self.changed:
                    server = rng.choice(self.servers)
                try:
                    self.turn(server, index)
                except KILLED:
                    with self.changed:
                        self.repeated += 1
                        if not self.changed.wait_for(lambda: server not in self.servers, 60):
                            raise AssertionError("a server that nobody killed cut a stream")
        except Exception as error:  # said by the thread that waits for all
            with self.changed:
                self.broken.append(error)

    def run(self, start, kills, rng, servers=1):
        """Talks at servers, of which one after the other is killed. Returns the ids."""
        self.start, self.kills, self.rng = start, kills, rng
        self.servers = [start() for _ in range(servers)]
        self.kill_at = self.gap()
        threads = [threading.Thread(target=self.talk, args=(index,))
                   for index in range(len(self.ids))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for server in self.servers:
            server.kill()
        if self.broken:
            raise self.broken[0]
        return self.ids


class Kills(ServerTest):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(int(os.environ.get("STASIS_TEST_SEED", 0)))
        self.whole_size = "STASIS_TEST_ALL" in os.environ
        self.kills = 200 if self.whole_size else 4
        self.whole = self.talks(f"dir:{self.path('whole')}", 0)
        self.assertEqual(len({ids[-1] for ids in self.whole}), len(self.whole))

    def talks(self, uri, kills, servers=1):
        talks = Talks(*((32, 30) if self.whole_size else (6, 6)))
        began = time.monotonic()
        try:
            ids = talks.run(lambda: self.serve(LLAMA, "--store", uri), kills, self.rng, servers)
        except Exception as error:
            raise AssertionError(self.said()[-4000:]) from error
        self.assertEqual(talks.kills, 0, "the conversations ended before the last kill")
        if self.whole_size:
            print(f"{uri.split(':')[0]}, {servers} servers: {len(ids)} conversations of "
                  f"{len(ids[0])} turns, {kills} kills, {talks.repeated} turns begun again, "
                  f"{time.monotonic() - began:.0f} s", flush=True)
        return ids

    def test_killed_and_begun_again(self):
        for scheme in "dir", "sqlite":
            self.assertEqual(self.talks(f"{scheme}:{self.path(scheme)}", self.kills), self.whole)

    def test_two_servers_over_one_directory(self):
        self.assertEqual(self.talks(f"dir:{self.path('both')}", self.kills, 2), self.whole)


class KillsOverObjectStorage(Kills):
    test_killed_and_begun_again = test_two_servers_over_one_directory = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.service = seaweedfs.start(cls)
        seaweedfs.give_keys(cls.addClassCleanup)

    def test_two_servers_one_killed_again_and_again(self):
        self.assertEqual(self.talks(self.service.uri("kills"), self.kills, 2), self.whole)
