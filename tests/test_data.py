"""The data module: CIFAR-10 whole, or the stand-in whole, or one clear sentence."""

import pickle
import tarfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from support import Later

from ddp_lab import data
from ddp_lab.kit import torchrun

pytestmark = pytest.mark.processes
torch, datasets = Later("torch"), Later("torchvision.datasets")
resnet = Later("ddp_lab.cifar10.resnet")

FILES = ["batches.meta", *(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


@pytest.fixture(autouse=True)
def few_images(monkeypatch):
    monkeypatch.setattr(data, "TRAIN", 100)
    monkeypatch.setattr(data, "TEST", 20)


@pytest.fixture
def no_network(monkeypatch):
    """Let nobody answer, at once."""
    monkeypatch.setattr(datasets.CIFAR10, "url", "http://127.0.0.1:9/cifar.tar.gz")


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Serve an archive that is taken for CIFAR-10; return its path."""
    folder = tmp_path / "served" / data.CIFAR10_FOLDER
    data._write_batches(folder)
    archive = folder.parent / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, data.CIFAR10_FOLDER)
    md5 = {name: data._md5(folder / name) for name in FILES}
    cifar10 = datasets.CIFAR10
    monkeypatch.setattr(cifar10, "tgz_md5", data._md5(archive))
    monkeypatch.setattr(cifar10, "train_list", [[n, md5[n]] for n in FILES[1:-1]])
    monkeypatch.setattr(cifar10, "test_list", [[FILES[-1], md5[FILES[-1]]]])
    monkeypatch.setattr(cifar10, "meta", cifar10.meta | {"md5": md5["batches.meta"]})
    handler = partial(SimpleHTTPRequestHandler, directory=archive.parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{http.server_port}/{archive.name}"
        monkeypatch.setattr(cifar10, "url", url)
        yield archive
        http.shutdown()


def stand_in(root):
    return root / "stand-in" / data.CIFAR10_FOLDER


def one_sentence(error) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith(".")
    return text


def test_torchvision_reads_the_stand_in_like_cifar10(tmp_path):
    found = data.prepare(tmp_path)
    assert (found.name, found.root) == ("stand-in shapes", tmp_path)
    for train, size in ((True, found.train), (False, found.test)):
        images = resnet.StandIn(tmp_path, train=train)
        assert images.data.shape == (size, 32, 32, 3)
        assert images.data.dtype == np.uint8
        assert np.bincount(images.targets).tolist() == [size // 10] * 10
        assert images.classes == list(data.SHAPES)
    assert sorted(path.name for path in stand_in(tmp_path).iterdir()) == FILES


def test_a_batch_has_the_keys_and_types_of_cifar10(tmp_path):
    data.prepare(tmp_path)
    with open(stand_in(tmp_path) / "data_batch_5", "rb") as file:
        batch = pickle.load(file, encoding="latin1")
    assert set(batch) == {"batch_label", "labels", "data", "filenames"}
    assert batch["data"].shape == (20, 3072)
    assert {type(label) for label in batch["labels"]} == {int}


def test_the_stand_in_is_the_same_everywhere_and_drawn_once(tmp_path):
    data.prepare(tmp_path / "here")
    data.prepare(tmp_path / "there")
    for name in FILES:
        here, there = (stand_in(tmp_path / f) / name for f in ("here", "there"))
        assert here.read_bytes() == there.read_bytes()
    drawn = (stand_in(tmp_path / "here") / "test_batch").stat().st_mtime_ns
    data.prepare(tmp_path / "here")
    assert (stand_in(tmp_path / "here") / "test_batch").stat().st_mtime_ns == drawn


def test_a_class_is_a_shape_and_nothing_else():
    rng = np.random.default_rng(0)
    images = data.draw(np.repeat(np.arange(10), 200), rng).reshape(10, 200, -1) / 255.0
    means = images.mean(axis=(1, 2))
    assert means.max() - means.min() < 0.1, "a class must not show by its brightness"
    assert images.std(axis=2).min() > 0.02, "no image is empty"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_stand_in_is_refused(tmp_path, name, damage):
    data.prepare(tmp_path)
    path = stand_in(tmp_path) / name
    text = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(text[: len(text) // 2])
    with pytest.raises(data.DataError) as error:
        data.prepare(tmp_path)
    assert name in (text := one_sentence(error))
    assert "make data" in text and "delete" in text


def test_an_interrupted_drawing_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(classes, rng):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(data, "draw", interrupted)
        data.prepare(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert data.prepare(tmp_path).test == 20


def test_two_may_draw_at_once(tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(data.prepare(tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["stand-in"]


def test_prepare_never_downloads(tmp_path, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("prepare went to the network")

    monkeypatch.setattr("urllib.request.urlopen", forbidden)
    assert data.prepare(tmp_path).name == "stand-in shapes"


def test_without_a_network_fetch_says_so_and_draws(tmp_path, no_network, capsys):
    began = time.monotonic()
    assert data.fetch(tmp_path).name == "stand-in shapes"
    assert time.monotonic() - began < 20
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "cannot be reached" in said


def test_fetch_mends_the_stand_in(tmp_path, no_network):
    data.prepare(tmp_path)
    (stand_in(tmp_path) / "test_batch").write_bytes(b"")
    (tmp_path / "stand-in" / "checksums.json").unlink()
    assert data.fetch(tmp_path).name == "stand-in shapes"


def test_fetch_brings_cifar10_once_and_it_goes_before_the_stand_in(tmp_path, server):
    root = tmp_path / "data"
    assert data.prepare(root).name == "stand-in shapes"
    assert data.fetch(root).name == "CIFAR-10"
    assert sorted(path.name for path in root.iterdir()) == [
        data.CIFAR10_FOLDER,
        "stand-in",
    ]
    server.unlink()  # whoever asked again would fail
    assert data.fetch(root) == data.prepare(root)
    assert len(datasets.CIFAR10(root, train=True)) == 100


def test_a_damaged_cifar10_is_refused_and_fetch_mends_it(tmp_path, server):
    root = tmp_path / "data"
    data.fetch(root)
    path = root / data.CIFAR10_FOLDER / "data_batch_3"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(data.DataError) as error:
        data.prepare(root)
    text = one_sentence(error)
    assert "data_batch_3" in text and "make data" in text and "delete" in text
    assert data.fetch(root).name == "CIFAR-10"


def test_a_download_that_breaks_off_leaves_nothing(tmp_path, server):
    server.write_bytes(server.read_bytes()[:1000])
    with pytest.raises(data.DataError) as error:
        data.fetch(tmp_path / "data")
    assert "make data" in one_sentence(error)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("damage", ["nothing there", "truncated"])
def test_the_program_without_images_says_what_to_do(tmp_path, damage):
    root = tmp_path / "data"
    if damage == "truncated":
        data.prepare(root)
        path = stand_in(root) / "data_batch_2"
        path.write_bytes(path.read_bytes()[:1000])
    command = f"--nproc-per-node 2 ddp_lab/cifar10/resnet.py --data {root}"
    run = torchrun(command, expect_failure=True)
    assert run.failure.kind == "exit"
    assert "run `make data`" in run.failure.cause


def test_the_program_too_checks_cifar10(tmp_path, server):
    root = tmp_path / "data"
    data.fetch(root)  # what torchvision takes for CIFAR-10 in this process alone
    command = f"--nproc-per-node 1 ddp_lab/cifar10/resnet.py --data {root}"
    assert "run `make data`" in torchrun(command, expect_failure=True).failure.cause
