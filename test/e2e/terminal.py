# SPDX-License-Identifier: Apache-2.0
"""A program in a terminal of its own (a pty): what tests type, and what it shows."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time


class Terminal:
    """`folder` is where a chat keeps its history. The locale is what `environment` says, or none."""

    def __init__(self, words, folder, columns=80, **environment):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if not re.match("LC_|LANG", name)}
        self.process = subprocess.Popen([*map(str, words)], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                        env={**inherited, "TERM": "xterm", "XDG_STATE_HOME": str(folder), **environment})
        os.close(slave)
        self.unread = b""

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def read_until(self, text, seconds=60):
        """All up to a text and with it; the rest is kept for the next call."""
        end = time.monotonic() + seconds
        while text not in self.unread and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                self.unread += os.read(self.master, 65536)
        assert text in self.unread, self.unread
        end = self.unread.index(text) + len(text)
        seen, self.unread = self.unread[:end], self.unread[end:]
        return seen

    def read_all(self):
        while True:
            try:
                part = os.read(self.master, 65536)
            except OSError:  # Linux's way to say that the other side is closed
                part = b""
            if not part:
                return self.unread
            self.unread += part

    def await_editor(self):
        """A key typed before the line editor has taken over the terminal would be echoed, and edited, by the kernel."""
        while termios.tcgetattr(self.master)[3] & termios.ICANON and self.process.poll() is None:
            time.sleep(0.01)

    def type(self, keys):
        self.await_editor()
        os.write(self.master, keys)

    def leave(self):
        self.type(b"\x15\x04")
        return self.process.wait(60)
