"""Shared by the Python scripts of this folder: counted checks, third-party servers, and a system of ken."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

checks = 0
# On SIGTERM a script exits normally, so that it stops the processes that it has started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))


def counted():
    """The number of checks that have passed so far."""
    return checks


def holds(what, condition, shown=""):
    global checks
    if not condition:
        sys.exit(f"{Path(sys.argv[0]).name}: does not hold: {what}: {shown}")
    checks += 1


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """Starts a server in a separate process group, so that its children are stopped with it, and waits until it answers at `url`."""

    def __init__(self, command, url, log, key="", **env):
        self.log = open(log, "wb")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, cwd=Path(log).parent, env=os.environ | env, start_new_session=True
        )
        end = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"}), timeout=5)
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if self.process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    sys.exit(f"{Path(sys.argv[0]).name}: {command[0]} does not start: {Path(log).read_text()[-2000:]}")
                time.sleep(0.5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        self.log.close()


@contextlib.contextmanager
def ken(programs, home, env):
    """Starts a whole system in `home`. Yields a function that runs `ken` with the given arguments on this system."""
    program = [programs / "ken", "--home", home]
    system = subprocess.Popen(
        [*program, "up", "--port", "0", "--cognitive-port", "0"], stdout=subprocess.PIPE, env=env, text=True
    )
    try:
        if not any(line.startswith("ready ") for line in system.stdout):
            sys.exit(f"{Path(sys.argv[0]).name}: {program[0]} does not start")
        yield lambda *words: subprocess.run([*program, *words], env=env, capture_output=True, text=True, timeout=300)
    finally:
        system.send_signal(signal.SIGINT)
        system.wait()
