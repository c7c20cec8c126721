"""A container runtime for machines that lack capabilities: removes them from the configuration, then runs runc.

Docker 20.10 gives a privileged container every capability that the kernel knows. If this machine's bounding set lacks
one, runc fails with "unable to apply caps: operation not permitted". `runc create` reads the capabilities from
the bundle's config.json, `runc exec` from the file of --process.
"""

import json
import os
import sys

# In the order of their numbers in linux/capability.h.
NAMES = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
]


def available_capabilities() -> set[str]:
    """The names of the capabilities in this process's bounding set."""
    with open("/proc/self/status") as status:
        bounding = next(int(line.split()[1], 16) for line in status if line.startswith("CapBnd:"))
    return {f"CAP_{name}" for number, name in enumerate(NAMES) if bounding >> number & 1}


def reduce(path: str, *, bundle: bool) -> None:
    """Remove unavailable capabilities from the process in `path`, an OCI configuration if `bundle`."""
    with open(path) as file:
        document = json.load(file)
    process = document["process"] if bundle else document
    available = available_capabilities()
    for kind, names in (process.get("capabilities") or {}).items():
        process["capabilities"][kind] = [name for name in names if name in available]
    with open(path, "w") as file:
        json.dump(document, file)


def main(arguments: list[str]) -> None:
    """Reduce the files that the runc command refers to, then become runc."""
    for option, value in zip(arguments, arguments[1:], strict=False):
        if option in {"--bundle", "-b"}:
            reduce(os.path.join(value, "config.json"), bundle=True)
        elif option in {"--process", "-p"} and "exec" in arguments:
            reduce(value, bundle=False)
    os.execvpe("runc", ["runc", *arguments], {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"})


if __name__ == "__main__":
    main(sys.argv[1:])
