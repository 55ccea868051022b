# A program that takes turns: it opens a model once, and answers each line of its stdin with a line
# of JSON.
import json
import subprocess
import sys
import tempfile


class Program:
    """Runs as long as the `with` block that holds it."""

    def __init__(self, command):
        self.command = [str(word) for word in command]

    def __enter__(self):
        print("  " + " ".join(self.command), file=sys.stderr, flush=True)
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        return self

    def ask(self, line):
        """Returns what the program answers. Ends with 1 if it ends instead."""
        print(f"    {self.command[0]}: {line}", file=sys.stderr, flush=True)
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            self.process.kill()
            self.errors.seek(0)
            sys.exit(f"bench_peer: {self.command[0]} ended with {self.process.wait()}:\n"
                     f"{self.errors.read().decode()[-2000:]}")

    def __exit__(self, *reason):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        if reason[0] is not None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
