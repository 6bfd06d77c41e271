"""What hipcc of ROCm 7 does with its arguments, around another clang.

hipcc parses its arguments, takes --offload-arch out, and calls clang++ with options of its own in
front: include folders, the architecture, and what links host programs when there is no -c. An
option that neither hipcc nor clang documents is refused here, whatever the clang behind makes of it
(zig's has options of zig's own).

The environment says which clang it is: HIPCC_CLANG, a command line; HIPCC_VERSION; HIPCC_REFUSES,
an option that this hipcc does not know.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

VERSION = "7.0.51831-a3e329ad8"

# Those of clang's command line reference that a build of code objects may want, and hipcc's own.
OPTIONS = re.compile(
    r"-c|-O[0-3s]|-std=(c|gnu)\+\+\d\w|-W[a-z][a-z-]*(=\d+)?|-[DI].+"
    r"|--offload-arch=gfx\w+|--offload-device-only|--(no-)?gpu-bundle-output|-f(no-)?gpu-rdc"
    r"|-nogpulib|-nogpuinc|-fuse-cuid=(hash|random|none)|-mcode-object-version=[456]"
    r"|-f(file|debug|macro)-prefix-map=.+=.*|-M[DP]|--rocm-path=.+|--genco"
)
FRONTEND_OPTIONS = ("-dependency-file", "-MT")  # after -Xclang; the next -Xclang has the value


def unknown(arguments: list[str]) -> str | None:
    """The first argument that is no documented option, no option's value and no source file."""
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-x", "-o"):
            next(rest, None)
        elif argument == "-Xclang":
            option = next(rest, "")
            if option not in FRONTEND_OPTIONS or next(rest, "") != "-Xclang":
                return option
            next(rest, None)
        elif argument.startswith("-"):
            refused = os.environ.get("HIPCC_REFUSES")
            if not OPTIONS.fullmatch(argument) or (refused and argument.startswith(refused)):
                return argument
        elif not argument.endswith((".hip", ".cpp", ".o")):
            return argument
    return None


def clang_arguments(arguments: list[str]) -> list[str]:
    """What hipcc passes on for a HIP source."""
    architectures = [a for a in arguments if a.startswith("--offload-arch=")]
    others = [a for a in arguments if a not in architectures]
    added = ["-isystem", "/opt/rocm/include", *architectures]
    if not any(a.startswith("-O") for a in arguments):
        added.append("-O3")
    if "-c" not in arguments:
        added += ["-L/opt/rocm/lib", "--hip-link", "--rtlib=compiler-rt", "-unwindlib=libgcc"]
    return added + others


def main(arguments: list[str]) -> int:
    clang = shlex.split(os.environ["HIPCC_CLANG"])
    if "--version" in arguments:
        print("HIP version:", os.environ.get("HIPCC_VERSION", VERSION), flush=True)
        return subprocess.run([*clang, "--version"], check=False).returncode
    refused = unknown(arguments)
    if refused is not None:
        print(f"clang++: error: unknown argument: '{refused}'", file=sys.stderr)
        return 1
    command = [*clang, *clang_arguments(arguments)]
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        print("failed to execute:", shlex.join(command), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
