# SPDX-License-Identifier: Apache-2.0
"""Several processes under mpirun, as tests start them, watch them and see them end."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from serving import end_with_the_test

END_SECONDS = 20  # at most until all ranks have ended after one was lost; 5 on a quiet machine
MPI_SETTINGS = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                "OMPI_MCA_orte_execute_quiet": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def environment(build, **more):
    """For mpirun and what it starts; a program that is not nibble's own is told where the module is."""
    return {**os.environ, **MPI_SETTINGS, "NIBBLE_MPI": str(build / "nibble-mpi.so"), **more}


def state_of(pid):
    """A letter as ps shows it; None: there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def is_alive(pid):
    return state_of(pid) not in (None, "Z", "X")


def descendants(pid):
    """All processes below this one."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        own = children.get(left.pop(), [])
        found += own
        left += own
    return found


def ranks_below(pid, program):
    """The pids of the ranks of a program below this process, by rank."""
    ranks = {}
    for child in descendants(pid):
        try:
            if pathlib.Path(f"/proc/{child}/exe").resolve() != pathlib.Path(program).resolve():
                continue
            words = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                ranks[int(word.split(b"=")[1])] = child
    return ranks


def wait_gone(pids, seconds):
    """Those that are still there when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(is_alive, pids)):
        time.sleep(0.01)
    return [pid for pid in pids if is_alive(pid)]


def job_of(pid):
    """Open MPI's name of the job that a rank belongs to, as in the names of its files in /dev/shm."""
    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    number = next(word.split(b"=")[1] for word in words if word.startswith(b"OMPI_MCA_ess_base_jobid="))
    return f"{int(number):x}"


def left_behind(job):
    return [name for name in os.listdir("/dev/shm") if job in name]


class Hosts:
    """Two network namespaces with a link between them, each with a host name of its own: two machines to MPI."""

    NAMES = ("nibble-a", "nibble-b")

    @staticmethod
    def possible():
        """Root may make them, if the system has them."""
        made = shutil.which("ip") and subprocess.run(["ip", "netns", "add", "nibble-c"], stderr=subprocess.DEVNULL).returncode == 0
        return made and subprocess.run(["ip", "netns", "delete", "nibble-c"]).returncode == 0

    def __init__(self, folder):
        """`folder` is for the program that mpirun reaches the other host with, in place of ssh."""
        self.agent = folder / "agent"
        addresses = [f"10.77.{os.getpid() % 256}.{number}" for number in (1, 2)]
        entries = "\n".join(f"{address}) name={name};;" for address, name in zip(addresses, self.NAMES))
        self.agent.write_text(f"""#!/bin/sh
case $1 in
{entries}
esac
shift
exec ip netns exec $name unshare --uts sh -c "hostname $name; $*"
""")
        self.agent.chmod(0o755)
        self.hosts = ",".join(addresses)
        for name in self.NAMES:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", "name", "mpi0", "netns", self.NAMES[0], "type", "veth", "peer", "name", "mpi0", "netns", self.NAMES[1])
        for name, address in zip(self.NAMES, addresses):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "mpi0")
            for device in ("mpi0", "lo"):
                run("ip", "-n", name, "link", "set", device, "up")

    @property
    def mpirun(self):
        """The words that start mpirun on the first host, with a rank on each in turn."""
        first = self.NAMES[0]
        return ["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c", f'hostname {first}; exec mpirun "$@"', "mpirun",
                "--mca", "plm_rsh_agent", str(self.agent), "--host", self.hosts, "--map-by", "node"]

    def cut(self):
        run("ip", "-n", self.NAMES[0], "link", "set", "mpi0", "down")

    def close(self):
        for name in self.NAMES:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


class Group:
    """A program under mpirun, each rank of which says "RANK PID" in the beginning. `pids`, by rank; `err` at the end.

    Ranks write their errors to a file: mpirun may leave unread what one says after another has died."""

    def __init__(self, words, count, env, mpirun=("mpirun",)):
        self.errors = tempfile.NamedTemporaryFile("r")
        ranks = ["sh", "-c", 'exec "$@" 2>>"$0"', self.errors.name, *map(str, words)]
        self.process = subprocess.Popen([*mpirun, "-n", str(count), *ranks], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=env, preexec_fn=end_with_the_test)
        self.pids, self.out, self.err = {}, [], ""
        while len(self.pids) < count:
            line = self.process.stdout.readline()
            assert line, "a rank did not start: " + self.process.stderr.read() + self.errors.read()
            first = re.fullmatch(r"(\d+) (\d+)\n", line)
            if first:
                self.pids[int(first[1])] = int(first[2])
            else:
                self.out.append(line.rstrip("\n"))  # of a rank that is ahead of another's first line
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.err = self.process.stderr.read()

    def end(self, seconds=30):
        """The exit status; all that was written is then in `out` and `err`."""
        status = self.process.wait(seconds)
        self.out += self.process.stdout.read().splitlines()
        self.reader.join(5)
        self.err += self.errors.read()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
        self.process.stdout.close()
        self.process.stderr.close()
        self.errors.close()
