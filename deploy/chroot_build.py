"""The Dockerfile's lines in a Debian root folder, for machines without a builder of images (as root):

    debootstrap --variant=minbase --include=python3-venv,python-is-python3,ca-certificates bookworm ROOT
    python deploy/chroot_build.py ROOT

Both stages run in the one root, with Debian's Python. Then the server is started as the image starts it; it ends
with 0 when its HEALTHCHECK says that it is well. Certificates and settings of pip are those of this machine.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).parents[1]
OURS = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")


def lines(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile: word and rest."""
    joined = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [
        (word, rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in joined.splitlines()) if word
    ]


def main(root: Path) -> int:
    for name in OURS:
        if Path(name).exists():
            shutil.copy(name, root / name[1:])
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
    env |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    folder, user, check, run = "/", "root", "", [""]

    def chroot(*command: str) -> list[str]:
        return ["chroot", f"--userspec={user}", str(root), "/bin/sh", "-c", f'cd {folder} && exec "$@"', "sh", *command]

    for word, rest in lines((PROJECT / "deploy" / "Dockerfile").read_text()):
        sys.stdout.write(f"{word} {' '.join(rest.split())}\n")
        sys.stdout.flush()
        if word == "WORKDIR":
            folder = rest
            (root / rest[1:]).mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            to = root / folder[1:] / target
            for source in sources:
                of = PROJECT / source
                shutil.copytree(of, to, dirs_exist_ok=True) if of.is_dir() else shutil.copy(of, to)
        elif word == "RUN":
            subprocess.run(chroot("/bin/sh", "-c", rest), env=env, check=True)
        elif word == "ENV":
            env |= {
                name: value.replace("$PATH", env["PATH"])
                for name, _, value in (x.partition("=") for x in shlex.split(rest))
            }
        elif word == "USER":
            user = rest
        elif word == "HEALTHCHECK":
            check = rest.partition("CMD ")[2]
        elif word == "CMD":
            run = json.loads(rest)
    server = subprocess.Popen(chroot(*run), env=env)
    try:
        for _ in range(60):
            time.sleep(1)
            if (
                server.poll() is None
                and subprocess.run(chroot("/bin/sh", "-c", check), env=env, stderr=subprocess.DEVNULL).returncode == 0
            ):
                sys.stdout.write("The server is well.\n")
                return 0
    finally:
        server.terminate()
        server.wait()
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
