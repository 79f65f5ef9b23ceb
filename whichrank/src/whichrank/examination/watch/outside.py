"""What leaves the script: files that it writes, and lines that it prints."""

import builtins
import os
import re
import sys
import zlib
from pathlib import Path
from typing import Any

import torch

from whichrank.examination.facts import Witnessed
from whichrank.examination.watch.frames import place, within, wrap

OWN_FILES = re.compile(
    r"/(__pycache__|torchinductor\w*|\.triton|\.cache)/|^/(dev|proc)/|\.lock$"
)


class Outside:
    """Fills `files` and `prints`."""

    def __init__(self, facts: Witnessed, folder: Path) -> None:
        self.facts, self.folder, self.pid = facts, folder, os.getpid()

    def watch(self) -> None:
        """See which files are written, and what is printed."""
        sys.addaudithook(self.audit)
        wrap(torch, "save", self.saved)
        wrap(builtins, "print", self.printed)

    def printed(self, original: Any, *args: Any, **kwargs: Any) -> None:
        """Something is printed."""
        if line := place():
            before = self.facts.prints.get(line, 0)
            words = " ".join(map(str, args))
            self.facts.prints[line] = zlib.crc32(words.encode(errors="replace"), before)
        original(*args, **kwargs)

    def audit(self, event: str, args: tuple) -> None:
        """Python opens or renames a file, among other things."""
        if event == "open":
            path, mode, flags = args
            wants = isinstance(mode, str) and set(mode) & set("wax+")
            writes = wants or (mode is None and flags & (os.O_WRONLY | os.O_RDWR))
            if writes:
                self._wrote(path)
        elif event == "os.rename":
            self._wrote(args[1])

    def saved(self, original: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        """torch.save, which opens its file in C++."""
        self._wrote(f)
        return original(obj, f, *args, **kwargs)

    def _wrote(self, path: Any) -> None:
        """Keep a path, and which line of the script has written to it."""
        if os.getpid() != self.pid or not isinstance(path, str | os.PathLike):
            return  # a fork that the script has made, or no path
        name = os.path.abspath(os.fspath(path))
        ours = name.startswith(str(self.folder)) or OWN_FILES.search(name)
        if not ours and (line := place()) and not within("tempfile"):
            self.facts.files.setdefault(name, line)
