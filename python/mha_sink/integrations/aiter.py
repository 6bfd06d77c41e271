"""aiter's backward functions by this library's kernels, and `patch()` to put them into aiter.

`mha_bwd` and `mha_varlen_bwd` have aiter's names, order and defaults, so that an import can be
exchanged. `patch()` swaps them into an aiter that is installed, where its own autograd functions
look them up. What differs from aiter's is listed in `docs/semantics.md`.

What `patch()` does not reach: names that other modules imported from aiter before, the operators
`torch.ops.aiter.*`, and aiter's assembly kernels (`fmha_v3_bwd`, `fmha_v3_varlen_bwd`), to which
aiter routes some calls before it looks the two functions up. Those know no sink.
"""

from __future__ import annotations

import importlib
from types import ModuleType, TracebackType
from typing import Any

from mha_sink.mha import mha_bwd, mha_varlen_bwd

__all__ = ["Patch", "mha_bwd", "mha_varlen_bwd", "patch"]

FUNCTIONS = {"mha_bwd": mha_bwd, "mha_varlen_bwd": mha_varlen_bwd}
# aiter's autograd functions look them up in the module that defines them, its users in the package.
MODULES = ("aiter", "aiter.ops.mha")

# What each place held before the first of the patches that are in force.
_originals: dict[tuple[ModuleType, str], Any] = {}
_in_force = 0


class Patch:
    """aiter with the functions exchanged, until `restore()` or the end of a `with` block.

    Patches may nest and end in any order: aiter gets its own functions back with the last.
    """

    def __init__(self) -> None:
        global _in_force
        places = _places()
        for module, name in places:
            _originals.setdefault((module, name), getattr(module, name))
            setattr(module, name, FUNCTIONS[name])
        _in_force += 1
        self._ended = False

    def restore(self) -> None:
        """Ends this patch; again, it does nothing."""
        global _in_force
        if self._ended:
            return
        self._ended = True
        _in_force -= 1
        if _in_force > 0:
            return
        for (module, name), original in _originals.items():
            # Whoever exchanged it after us is not undone.
            if getattr(module, name, None) is FUNCTIONS[name]:
                setattr(module, name, original)
        _originals.clear()

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()


def patch() -> Patch:
    """Makes `aiter.mha_bwd` and `aiter.mha_varlen_bwd` run on this library's kernels.

    ::

        patch()             # for good, or until restore() of what it returns
        with patch():       # within the block
            loss.backward()

    Raises:
        ImportError: aiter is not installed, or this aiter has no such functions.
    """
    return Patch()


def _places() -> list[tuple[ModuleType, str]]:
    """(module, function name) of everything to exchange, before anything is."""
    places = []
    for path in MODULES:
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise  # aiter is there, and lacks something itself
            raise ImportError(
                f"mha_sink.integrations.aiter.patch: no module {error.name}; patch() exchanges "
                "functions of an installed aiter. Without aiter, import them from "
                "mha_sink.integrations.aiter"
            ) from error
        for name in FUNCTIONS:
            if not hasattr(module, name):
                raise ImportError(
                    f"mha_sink.integrations.aiter.patch: {path} has no {name}; need an aiter with "
                    "its CK operators (AITER_TRITON_ONLY leaves them out)"
                )
            places.append((module, name))
    return places
