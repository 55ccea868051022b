# The official clients of OpenAI and Anthropic against the server's forms, and against the server:
# makes an environment that has them, in the pinned versions, and runs test_clients.py and
# test_clients_served.py in it. Closes with one line that tools/test reads.
# Usage: clients.py build/release
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"


def equipped(build):
    """python3 with the clients, in an environment of the build's; None: they cannot be had."""
    place = build.parent / "serve-clients"
    python, installed = place / "bin/python3", place / "installed"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if installed.exists() and installed.read_text(encoding="utf-8") == wanted and subprocess.run(
            [python, "-c", "import anthropic, openai"], check=False).returncode == 0:
        return python
    for step in ([sys.executable, "-m", "venv", "--clear", place],
                 [python, "-m", "pip", "install", "-q", "--retries", "1", "--require-hashes",
                  "--only-binary", ":all:", "-r", REQUIREMENTS]):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"SKIPPED: serve: the clients of OpenAI and Anthropic cannot be had, so that the "
                  f"API's forms are not held against their types: "
                  f"{(done.stderr or done.stdout).strip()[-300:]}")
            return None
    installed.write_text(wanted, encoding="utf-8")
    return python


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: clients.py RELEASE_BUILD")
    build = pathlib.Path(sys.argv[1]).resolve()
    python = equipped(build)
    if python is None:
        print("0 passed, 0 failed, 1 skipped")
        return
    sys.exit(subprocess.run([python, HERE.parent / "tools/main.py", build / "stasis", HERE,
                             "test_clients", "test_clients_served"], check=False).returncode)


main()
