# A chat at a terminal of its own, typed by a test. It waits for what the terminal shows, never for
# a time: the editor announces that it reads keys by switching marks of pasted blocks on, and that a
# line has ended by switching them off.
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios

from stasis_process import command

READS, READ = "\x1b[?2004h", "\x1b[?2004l"
CTRL_C, CTRL_D, CTRL_U, CTRL_Z, UP, ALT_ENTER = "\x03", "\x04", "\x15", "\x1a", "\x1b[A", "\x1b\r"


def paste(text):
    return f"\x1b[200~{text}\x1b[201~"


class TypedChat:
    """`size`: columns and rows. `before` runs in the new process first; `under`: a shell's script
    that runs the command "$@"."""

    def __init__(self, folder, model, *options, term="xterm", size=(80, 24), before=None,
                 under='exec "$@"', **environment):
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

        def prepare():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if before is not None:
                before()

        others = {name: value for name, value in os.environ.items()
                  if name not in ("XDG_STATE_HOME", "STASIS_HISTORY")}
        given = {**others, "TERM": term, "HOME": str(folder), "LC_ALL": "C.UTF-8", **environment}
        self.process = subprocess.Popen(
            ["bash", "-c", under, "bash", str(command()), "chat", str(model),
             *map(str, options)], stdin=follower,
            stdout=follower, stderr=follower, preexec_fn=prepare, env=given)
        os.close(follower)
        self.output = ""
        self.at = 0  # what comes before has been looked at
        self.bytes = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.leader)

    def read_more(self, seconds=120):
        """False at the end of the output."""
        if not select.select([self.leader], [], [], seconds)[0]:
            raise AssertionError(f"nothing more came: {self.output[self.at:]!r}")
        try:
            part = os.read(self.leader, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.bytes += part
        self.output = self.bytes.decode(errors="replace").replace("\r\n", "\n")
        return bool(part)

    def wait(self, text):
        """What is shown up to this text, which is then behind."""
        while (found := self.output.find(text, self.at)) < 0:
            if not self.read_more():
                raise AssertionError(f"{text!r} did not come: {self.output[self.at:]!r}")
        shown = self.output[self.at:found]
        self.at = found + len(text)
        return shown

    def type(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        while data:
            if select.select([self.leader], [], [], 0)[0]:
                self.read_more()
            data = data[os.write(self.leader, data[:1024]):]

    def said(self):
        """What is shown until the editor reads again, without the progress bar."""
        shown = self.wait(READS)
        shown = re.sub(r"\r[^\r\n]*\[[#.]{30}\][^\r\n]*", "", shown).replace("\r\x1b[K", "")
        return shown.rsplit("\n", 1)[0].strip("\n")  # the prompt is behind it

    def ask(self, line, key="\r"):
        """Types a line; what is said to it."""
        self.type(line if isinstance(line, bytes) else line + key)
        self.wait(READ)
        return self.said()

    def become_quiet(self):
        """Reads until nothing has come for a second."""
        while select.select([self.leader], [], [], 1)[0] and self.read_more():
            pass

    def signal(self, number):
        self.process.send_signal(number)

    def rest(self):
        """What else is shown until the process ends, and its exit code."""
        while self.read_more():
            pass
        shown = self.output[self.at:]
        self.at = len(self.output)
        return shown, self.process.wait(60)

    def leave(self):
        self.type(CTRL_D)
        return self.rest()[1]
