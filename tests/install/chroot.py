# A clean Debian in a folder, by debootstrap: the release of this machine, from the mirror that its
# apt uses, with a C compiler and pkg-config. The result of debootstrap is kept in build/chroot as
# an archive, and so are the packages that apt fetches; each test unpacks it again.
import os
import pathlib
import re
import shutil
import subprocess

from stasis_process import ROOT

CACHE = ROOT / "build/chroot"
INCLUDED = "gcc,libc6-dev,pkg-config"
# Files that installing and removing leave in any case: caches, logs, apt's and dpkg's own records.
OF_APT = re.compile(r"var/(cache|log|lib/apt|lib/dpkg)/|etc/ld\.so\.cache|tmp/|srv/.")


class NotHere(Exception):
    """This machine does not allow it; says why."""


def said_by(*arguments, **process):
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, check=False,
                          **process)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise NotHere(f"{arguments[0]}: exit code {done.returncode}: {' '.join(last)}")
    return done.stdout


def release():
    """The code name of this machine's Debian."""
    found = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(),
                      re.MULTILINE)
    if found is None or shutil.which("apt-get") is None:
        raise NotHere("this is no Debian")
    return found[1]


def mirror(suite):
    """Where apt of this machine gets this release from."""
    fields = "$(CODENAME) $(COMPONENT) $(ORIGIN) $(REPO_URI)"
    for line in said_by("apt-get", "indextargets", "--format", fields).splitlines():
        if line.startswith(f"{suite} main Debian "):
            return line.split(" ", 3)[3]
    raise NotHere(f"apt of this machine has no source of {suite}")


def base():
    """The archive of a fresh system, made if it is not there yet."""
    if os.geteuid() != 0:
        raise NotHere("only root may chroot")
    if shutil.which("debootstrap") is None:
        raise NotHere("debootstrap is not installed")
    suite = release()
    archive = CACHE / f"{suite}.tar"
    if not archive.exists():
        fresh = CACHE / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        try:
            said_by("debootstrap", "--variant=minbase", f"--include={INCLUDED}", suite, fresh,
                    mirror(suite))
            said_by("chroot", fresh, "apt-get", "clean")
            said_by("tar", "-C", fresh, "-cf", CACHE / "fresh.tar", ".")
            (CACHE / "fresh.tar").rename(archive)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return archive


class Chroot:
    def __init__(self, folder):
        self.folder = folder
        said_by("tar", "-C", folder, "-xf", base())
        for name in "etc/resolv.conf", "etc/hosts":  # the network is this machine's
            if os.path.exists(f"/{name}"):
                shutil.copyfile(f"/{name}", folder / name)
        settings = said_by("apt-config", "dump")
        (folder / "etc/apt/apt.conf.d/90here").write_text("".join(
            f"{line}\n" for line in settings.splitlines()
            if re.match(r"Acquire::(https?|Retries)", line)) + 'APT::Sandbox::User "root";\n')
        self.archives = folder / "var/cache/apt/archives"
        for package in (CACHE / "packages").glob("*.deb"):
            shutil.copy2(package, self.archives)
        done = self.run("apt-get", "update")
        if done.returncode != 0 or "Err:" in done.stdout:
            raise NotHere(f"no package lists from the mirror: {done.stderr.strip()}")

    def run(self, *arguments):
        return subprocess.run(
            ["chroot", self.folder, *map(str, arguments)], capture_output=True, text=True,
            check=False, timeout=600, env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                "DEBIAN_FRONTEND": "noninteractive"})

    def keep_packages(self):
        """What apt fetched needs not be fetched again by the next test."""
        (CACHE / "packages").mkdir(exist_ok=True)
        for package in self.archives.glob("*.deb"):
            shutil.copy2(package, CACHE / "packages")

    def files(self):
        listed = said_by("find", ".", "-xdev", "(", "-type", "f", "-o", "-type", "l", "-o", "-type",
                         "d", ")", "-printf", "%P\n", cwd=self.folder)
        return {name for name in listed.splitlines() if not OF_APT.match(name)}
