"""Write arrays to an .npz file, as np.savez does, but under any name.

np.savez takes some names, such as "file", for its own parameters.
"""

import zipfile
from pathlib import Path
from typing import IO

import numpy as np


def save(file: Path | IO[bytes], arrays: dict[str, np.ndarray]) -> None:
    """Write `arrays` to `file`, a path or something open for binary writing."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
