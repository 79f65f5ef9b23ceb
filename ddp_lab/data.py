"""CIFAR-10 on this machine, or a stand-in that the same code can read.

    python -m ddp_lab.data      (what `make data` calls)

`fetch` downloads CIFAR-10 once, checked; where it cannot, it draws the stand-in: ten
classes of shapes, in CIFAR-10's own files. `prepare` returns what is there, draws the
stand-in if nothing is, and never downloads.
"""

import hashlib
import json
import os
import pickle
import shutil
import socket
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddp_lab import ROOT, from_here

FOLDER = ROOT / "data"
# As torchvision names them. It is imported where it is needed: that takes seconds.
CIFAR10_FOLDER, META = "cifar-10-batches-py", "batches.meta"
STAND_IN = Path("stand-in")
CHECKSUMS = "checksums.json"
# Images of the stand-in to train on and to test on, and files that hold the former.
TRAIN, TEST, BATCHES = 10_000, 2_000, 5
SIDE = 32  # pixels
CONTRAST = 70  # of 255, at least, between a shape and its ground
PATIENCE = 5.0  # seconds that the server may take to answer


@dataclass(frozen=True)
class Data:
    """Images that are ready to be read."""

    name: str
    """"CIFAR-10" or "stand-in shapes": say it beside every accuracy."""
    root: Path
    """What the programs take as `--data`."""
    train: int
    """Number of images to train on."""
    test: int
    """Number of images to test on."""

    def __str__(self) -> str:
        return f"{self.name}: {self.train:,} images to train on, {self.test:,} to test"


class DataError(Exception):
    """The images cannot be read; the message is one sentence with a way out."""

    def _render_traceback_(self) -> list[str]:
        """Show the sentence in a notebook, not the frames that led to it."""
        return [f"DataError: {self}"]


def prepare(root: Path = FOLDER) -> Data:
    """Return the images in `root`, drawing the stand-in if there are none.

    Raises:
        DataError: if a file of CIFAR-10 or of the stand-in is missing or damaged.
    """
    real, stand_in = root / CIFAR10_FOLDER, root / STAND_IN
    if real.exists():
        if bad := _bad_file(real, _real_checksums()):
            raise DataError(
                f"{from_here(real / bad)} is missing or damaged: run `make data` to "
                f"fetch CIFAR-10 again, or delete {from_here(real)} to work with the "
                "stand-in."
            )
        return Data("CIFAR-10", root, 50_000, 10_000)
    if not stand_in.exists():
        _draw_stand_in(stand_in)
    if bad := _bad_file(stand_in, _stand_in_checksums(stand_in)):
        raise DataError(
            f"{from_here(stand_in / bad)} is missing or damaged: run `make data`, or "
            f"delete {from_here(stand_in)}, and the stand-in is drawn anew."
        )
    return Data("stand-in shapes", root, TRAIN, TEST)


def fetch(root: Path = FOLDER) -> Data:
    """Download CIFAR-10 into `root` unless it is there; without a network, `prepare`.

    Raises:
        DataError: if what arrives is not CIFAR-10, or if CIFAR-10 is there but damaged
            and cannot be reached.
    """
    from torchvision.datasets import CIFAR10

    real, stand_in = root / CIFAR10_FOLDER, root / STAND_IN
    if not real.exists() or _bad_file(real, _real_checksums()):
        try:
            urllib.request.urlopen(CIFAR10.url, timeout=PATIENCE).close()
        except OSError as error:
            reason = getattr(error, "reason", error)
            print(f"{CIFAR10.url} cannot be reached ({reason}): see the stand-in.")
        else:
            _download(root, real)
    if stand_in.exists() and _bad_file(stand_in, _stand_in_checksums(stand_in)):
        shutil.rmtree(stand_in)  # nothing is lost: `prepare` draws the same again
    return prepare(root)


def _download(root: Path, real: Path) -> None:
    """Put CIFAR-10 into the folder `real`, whole or not at all."""
    from torchvision.datasets import CIFAR10

    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".fetch-") as folder:
        try:
            CIFAR10(folder, download=True)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"CIFAR-10 did not arrive whole ({error}): run `make data` again."
            ) from None
        shutil.rmtree(real, ignore_errors=True)
        os.replace(Path(folder) / CIFAR10_FOLDER, real)


def _real_checksums() -> dict[str, str]:
    """Return the MD5 of each file of CIFAR-10, as torchvision knows them."""
    from torchvision.datasets import CIFAR10

    meta = CIFAR10.meta["filename"], CIFAR10.meta["md5"]
    return dict([*CIFAR10.train_list, *CIFAR10.test_list, meta])


def _stand_in_checksums(stand_in: Path) -> dict[str, str]:
    """Return the MD5 of each file of the stand-in, as noted when it was drawn."""
    try:
        return json.loads((stand_in / CHECKSUMS).read_text())
    except (OSError, ValueError):
        return {CHECKSUMS: ""}  # without the note, the note is what is damaged


def _bad_file(folder: Path, checksums: dict[str, str]) -> str | None:
    """Return the first file in `folder` that is not what `checksums` says, or None."""
    for name, expected in checksums.items():
        path = folder / name
        if not path.is_file() or _md5(path) != expected:
            return name
    return None


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _draw_stand_in(stand_in: Path) -> None:
    """Draw the stand-in into the folder `stand_in`, whole or not at all."""
    stand_in.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=stand_in.parent, prefix=".draw-") as folder:
        whole = Path(folder) / STAND_IN
        _write_batches(whole / CIFAR10_FOLDER)
        files = sorted(path for path in whole.rglob("*") if path.is_file())
        checksums = {path.relative_to(whole).as_posix(): _md5(path) for path in files}
        (whole / CHECKSUMS).write_text(json.dumps(checksums, indent=1) + "\n")
        try:
            os.replace(whole, stand_in)
        except OSError:
            if not stand_in.exists():  # else another process has drawn it meanwhile
                raise


def _write_batches(folder: Path) -> None:
    """Write the files of CIFAR-10, with shapes in them."""
    folder.mkdir(parents=True)
    labels = ("train", TRAIN, "data_batch_{}", BATCHES), ("test", TEST, "test_batch", 1)
    for seed, (kind, count, name, files) in enumerate(labels):
        rng = np.random.default_rng(seed)
        classes = rng.permutation(np.arange(count) % len(SHAPES))
        for number, part in enumerate(np.split(classes, files), start=1):
            batch = {
                "batch_label": f"{kind} batch {number} of {files}",
                "labels": part.tolist(),
                "data": draw(part, rng).reshape(len(part), -1),
                "filenames": [f"{kind}_{number}_{i}.png" for i in range(len(part))],
            }
            _dump(batch, folder / name.format(number))
    meta = {"label_names": list(SHAPES), "num_cases_per_batch": TRAIN // BATCHES}
    _dump(meta | {"num_vis": 3 * SIDE * SIDE}, folder / META)


def _dump(content: dict, path: Path) -> None:
    with open(path, "wb") as file:
        pickle.dump(content, file, protocol=4)


def draw(classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one image for each class number: a shape somewhere on a shaded ground.

    Returns:
        uint8 of shape (images, 3, 32, 32).
    """
    n = len(classes)
    # The pixels as seen from the shape, whose radius is 1: moved, turned and scaled.
    radius = rng.uniform(9, 13, (n, 1, 1))
    center = SIDE / 2 + rng.uniform(-4, 4, (2, n, 1, 1))
    angle = rng.uniform(-0.3, 0.3, (n, 1, 1))
    rows, columns = np.mgrid[:SIDE, :SIDE] + 0.5
    y, x = (rows - center[0]) / radius, (columns - center[1]) / radius
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    inside = np.zeros((n, SIDE, SIDE))
    for number, distance in enumerate(SHAPES.values()):
        mine = classes == number
        edge = distance(u[mine], v[mine]) * radius[mine]  # pixels outside the shape
        inside[mine] = np.clip(0.5 - edge, 0, 1)
    # Two colors for the ground, which shade into each other; a third for the shape.
    ground, other, color = rng.uniform(0, 255, (3, n, 3, 1, 1))
    middle = (ground + other) / 2
    apart = middle + np.where(middle < 128, CONTRAST, -CONTRAST)
    color = np.where(np.abs(color - middle) < CONTRAST, apart, color)
    slope = rng.uniform(-1, 1, (2, n, 1, 1, 1))
    shade = np.clip(
        0.5 + (slope[0] * (rows - 16) + slope[1] * (columns - 16)) / 32, 0, 1
    )
    image = ground + (other - ground) * shade
    image += (color - image) * inside[:, None]
    image += rng.normal(0, 1, image.shape) * rng.uniform(2, 15, (n, 1, 1, 1))
    return np.clip(image, 0, 255).astype(np.uint8)


def _box(u: np.ndarray, v: np.ndarray, width: float, height: float) -> np.ndarray:
    return np.maximum(np.abs(u) - width, np.abs(v) - height)


def _polygon(u: np.ndarray, v: np.ndarray, corners: int) -> np.ndarray:
    """Outside of a regular polygon: beyond any one of its sides."""
    sides = 2 * np.pi * np.arange(corners) / corners
    far = [u * np.cos(side) + v * np.sin(side) for side in sides]
    return np.max(far, axis=0) - np.cos(np.pi / corners)


def _star(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.hypot(u, v) - (0.65 + 0.35 * np.cos(5 * np.arctan2(v, u)))


# For each class, how far outside the shape a point (u, v) lies; inside is below 0.
SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "disc": lambda u, v: np.hypot(u, v) - 0.9,
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.75) - 0.2,
    "square": lambda u, v: _box(u, v, 0.75, 0.75),
    "frame": lambda u, v: np.abs(_box(u, v, 0.65, 0.65)) - 0.17,
    "triangle": lambda u, v: _polygon(u, v, 3),
    "cross": lambda u, v: np.minimum(_box(u, v, 1, 0.28), _box(u, v, 0.28, 1)),
    "bar": lambda u, v: _box(u, v, 1, 0.3),
    "pair": lambda u, v: _box(u, np.abs(v) - 0.5, 0.9, 0.22),
    "star": _star,
    "crescent": lambda u, v: np.maximum(np.hypot(u, v) - 1, 0.8 - np.hypot(u - 0.5, v)),
}


def main() -> None:
    """Fetch CIFAR-10, or draw the stand-in, and say which it was."""
    socket.setdefaulttimeout(6 * PATIENCE)  # a download may stall, but not for good
    try:
        print(fetch())
    except DataError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
