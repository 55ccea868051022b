# Saves that are really killed, at random moments and at each of their system calls, or that meet a
# disk that is really full: the file holds the old or the new state, and continues from it as a
# session that was never disturbed. STASIS_SEED repeats the random moments (as well as time can be
# repeated), STASIS_CRASH_SECONDS is the duration.
import os
import pathlib
import random
import shutil
import subprocess
import time

from stasis_process import CommandTest, GEMMA, all_tokens, comma, command

STEP = 40  # tokens that a save adds
STEPS = 6
CALLS = ["openat", "flock", "fchmod", "pwrite64", "ftruncate", "fsync", "rename", "unlink"]


class Crash(CommandTest):
    def setUp(self):
        super().setUp()
        self.tokens = all_tokens(GEMMA)[:STEP * STEPS]
        self.use(self.folder)
        # The undisturbed continuation after each step; without a file, before the first.
        self.expected = [None]
        for step in range(1, STEPS + 1):
            self.ok(*self.save_step(step))
            self.expected.append(self.goes_on())
            shutil.copy(self.file, self.path(f"after{step}"))

    def use(self, folder):
        """Files of the test lie here from now on."""
        self.file = str(folder / "s")

    def save_step(self, step):
        """Arguments that make the state after `step` of that before it, and save it."""
        added = comma(self.tokens[(step - 1) * STEP:step * STEP])
        resume = ["--resume", self.file] if step > 1 else []
        return ["run", GEMMA, *resume, "--tokens", added, "-n", 0, "--save", self.file]

    def goes_on(self):
        """What a session loaded from the file does next; loading reads and checks all of it."""
        after = self.json("run", GEMMA, "--resume", self.file, "-n", 8, "--ignore-eos")
        return after["position"], after["digest"], after["tokens"]

    def go_back(self, step):
        """The file as it is after `step`, with bytes of a save that was killed behind its state."""
        for path in self.file, self.file + ".saving":
            pathlib.Path(path).unlink(missing_ok=True)
        if step > 0:
            after = pathlib.Path(self.path(f"after{step}")).read_bytes()
            pathlib.Path(self.file).write_bytes(after + b"?" * 5000)
            os.chmod(self.file, 0o600)

    def found(self, step):
        """Which state lies there after a disturbed save of `step`: that one, or the one before."""
        if step == 1 and not os.path.exists(self.file):
            return 0
        self.assertIn(now := self.goes_on(), self.expected[step - 1:step + 1])
        return self.expected.index(now)

    def check_next_save(self, step):
        """A step from where a disturbed one has left the file works and leaves nothing else."""
        self.ok(*self.save_step(step + 1))
        self.assertEqual(self.goes_on(), self.expected[step + 1])
        self.assertFalse(os.path.exists(self.file + ".saving"))

    def looks(self):
        """Changes as soon as a save writes."""
        status = os.stat(self.file) if os.path.exists(self.file) else None
        return os.path.exists(self.file + ".saving"), status and (status.st_mtime_ns, status.st_ino)

    def kill_in_save(self, arguments, delay):
        """kill -9, that long after the save has begun to write; whether it came in time."""
        before = self.looks()
        with subprocess.Popen([str(command()), *map(str, arguments)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and self.looks() == before:
                pass
            time.sleep(delay)
            process.kill()
            return process.wait() == -9

    def test_killed_at_random_moments(self):
        seed = int(os.environ.get("STASIS_SEED", random.randrange(1 << 32)))
        end = time.monotonic() + float(os.environ.get("STASIS_CRASH_SECONDS", 10))
        dice, kills, done, step = random.Random(seed), 0, 0, STEPS
        print(f"kill -9 at random moments: seed {seed}", flush=True)
        while time.monotonic() < end:
            if step == STEPS:
                step = 0
                self.go_back(step)
            killed = self.kill_in_save(self.save_step(step + 1), dice.choice([0, 0.0003, 0.003]) *
                                       dice.random())
            now = self.found(step + 1)
            kills += killed
            done += killed and now > step
            step = now
        print(f"kill -9 at random moments: {kills} kills, {done} of them left the new state")
        self.assertGreater(kills, 10)

    def trace(self, inject, step):
        """A step under strace, which disturbs a call that concerns the files of the test."""
        paths = [self.file, self.file + ".saving", self.folder]
        filters = [word for path in paths for word in ("-P", str(path))]
        return subprocess.run(["strace", "-f", "-o", "/dev/null", *filters, "-e",
                               "trace=" + ",".join(CALLS), "-e", "inject=" + inject,
                               str(command()), *map(str, self.save_step(step))],
                              capture_output=True, check=False, timeout=120)

    def disturb_each_call(self, disturbance, check):
        """Every call of a first and of a later save; `check` gets the process and what it left."""
        trial = ["strace", "-o", "/dev/null", "true"]
        if shutil.which("strace") is None or subprocess.run(trial, check=False).returncode != 0:
            self.skipTest("strace is not installed, or may not trace")
        disturbed = 0
        for step in 1, 3:
            for call in CALLS:
                for number in range(1, 100):
                    self.go_back(step - 1)
                    process = self.trace(f"{call}:{disturbance}:when={number}", step)
                    if process.returncode == 0:
                        break
                    disturbed += 1
                    now = self.found(step)
                    with self.subTest(step=step, call=call, number=number):
                        check(process, step, now)
                        self.check_next_save(now)
        print(f"{disturbance} at every system call of a save: {disturbed} times")
        self.assertGreater(disturbed, 15)

    def test_killed_at_every_system_call(self):
        def check(process, _step, _now):
            self.assertEqual(process.returncode, -9, process.stderr)

        self.disturb_each_call("signal=KILL", check)

    def test_every_system_call_fails(self):
        def check(process, step, now):
            self.assertEqual(process.returncode, 2, process.stderr)
            if now == step:
                self.assertIn(b"may not survive a power loss", process.stderr)

        for error in "ENOSPC", "EIO":
            self.disturb_each_call("error=" + error, check)

    def full_filesystem(self, size):
        """A file system of that size, in a namespace of its own that ends with the test."""
        script = 'mount -t tmpfs -o size="$0" none "$1" && echo mounted && exec cat'
        space = self.folder / "space"
        space.mkdir()
        keeper = subprocess.Popen(["unshare", "-rm", "sh", "-c", script, str(size), str(space)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(keeper.communicate)
        if keeper.stdout.readline() != b"mounted\n":
            self.skipTest("no file system may be mounted here, in a namespace of its own")
        return pathlib.Path(f"/proc/{keeper.pid}/root{space}")

    def test_full_filesystem(self):
        space = self.full_filesystem(8 << 20)
        self.use(space)
        page = os.sysconf("SC_PAGE_SIZE")
        for step in 1, 3:
            refusals = 0
            for room in range(0, 400):
                self.go_back(step - 1)
                status = os.statvfs(space)
                (space / "filler").write_bytes(b"x" * ((status.f_bavail - room) * page))
                done = self.run_command(*self.save_step(step))
                now = self.found(step)
                (space / "filler").unlink()
                self.assertEqual((done.returncode, now),
                                 (0, step) if done.returncode == 0 else (2, step - 1), done.stderr)
                if done.returncode == 0:
                    break
                self.assertIn(b"No space left on device", done.stderr)
                self.assertFalse(os.path.exists(self.file + ".saving"))
                refusals += 1
                self.check_next_save(now)
            print(f"full file system: {refusals} refusals of a save after {step - 1} steps")
            self.assertGreater(refusals, 10)
