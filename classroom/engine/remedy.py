"""What to do where bubblewrap is missing, or is not allowed to make a sandbox."""

import shutil
import sys
from contextlib import suppress
from pathlib import Path

INSTALL = "install it: sudo apt install bubblewrap, or sudo dnf install bubblewrap"
PROFILE = "bwrap-userns-restrict"
"""Of Ubuntu's package apparmor-profiles; what bwrap starts has no capability by it."""
RESTRICTED = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
APPARMOR = (
    "AppArmor lets only programs with a profile make user namespaces, as on Ubuntu"
    " since 23.10; give bubblewrap its profile:\n"
    "    sudo apt install apparmor-profiles\n"
    f"    sudo cp /usr/share/apparmor/extra-profiles/{PROFILE} /etc/apparmor.d/\n"
    f"    sudo apparmor_parser -r /etc/apparmor.d/{PROFILE}"
)
CONTAINERS = (".dockerenv", "run/.containerenv")
IN_A_CONTAINER = (
    "this is a container; start it so that a sandbox is possible inside:\n"
    "    docker run --security-opt seccomp=unconfined"
    " --security-opt apparmor=unconfined --security-opt systempaths=unconfined ...\n"
    "    podman run --security-opt seccomp=unconfined --security-opt unmask=ALL ..."
)
NO_GROUP = (
    "there can be no control group here: grade in a login session of a machine with"
    " systemd, as root of a machine, or in a container that may write to"
    " /sys/fs/cgroup (docker run --privileged --cgroupns private)"
)


def remedy(root: Path = Path("/")) -> str:
    """Return what stands in bubblewrap's way on this machine, and what to do about it.

    Args:
        root: where /proc and the marks of a container are looked for.
    """
    if sys.platform != "linux":
        return "it is made for Linux: grade in a container, or on another machine"
    if not shutil.which("bwrap"):
        return INSTALL
    found = []
    with suppress(OSError):  # this kernel has no such switch
        if (root / RESTRICTED).read_text().strip() == "1":
            found.append(APPARMOR)
    if any((root / name).exists() for name in CONTAINERS):
        found.append(IN_A_CONTAINER)
    return "\n".join(found)
