"""Which exception of a rank that waits is still to be told, and which it has caught."""

import linecache
import sys
import warnings
from types import FrameType

import pytest

from whichrank.run.inside import pending

CAUGHT = {
    "memory is out, so the batch is halved": """
def step(rows):
    if rows > 32:
        raise MemoryError(rows)
    wait()

for i in range(2):
    try:
        step(64 if i else 16)
    except MemoryError:
        step(32)
""",
    "a cache is missing": """
try:
    open("/nowhere/cache")
except FileNotFoundError as missing:
    print("building it")
    wait()
""",
    "no checkpoint yet, or another error": """
def resume():
    try:
        {}["step"]
    except KeyError as error:
        if "step" not in str(error):
            raise
        start = 0
    except OSError:
        raise
    except:
        wait()
        raise
    else:
        start = 1
    return start

try:
    resume() or {}[0]
except KeyError:
    with open("/dev/null") as file, open("/dev/null"):
        wait()
""",
    "a download is tried again": """
def download():
    for attempt in range(3):
        try:
            if attempt < 2:
                raise ConnectionError("not yet")
            return
        except ConnectionError:
            wait()
            if attempt < 2:
                continue
            raise

download()
""",
    "only another error goes on": """
def step(rows):
    try:
        raise RuntimeError("out of memory")
    except RuntimeError as error:
        if "out of memory" in str(error):
            wait()
            return
        raise

step(64)
""",
    "tried again in the except, before it gives up": """
def load(attempts=0):
    try:
        raise OSError("busy")
    except OSError:
        for attempt in range(3):
            try:
                if attempt == 2:
                    return "loaded"
                raise OSError("still busy")
            except OSError:
                wait()
        raise

load()
""",
    "a try inside an except": """
try:
    raise KeyError("outer")
except KeyError:
    try:
        wait()
    finally:
        wait()
""",
    "raised anew, and caught further out": """
try:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error
    finally:
        pass
except ValueError:
    wait()
""",
    "a context manager that catches": """
from contextlib import contextmanager

@contextmanager
def forgiving():
    try:
        yield
    except OSError:
        wait()

with forgiving():
    raise OSError("disk")
""",
    "a generator that is left": """
def batches():
    try:
        yield 1
        yield 2
    finally:
        wait()

for batch in batches():
    break
""",
    "an error that is kept": """
kept = None
try:
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError("second")
except ValueError as error:
    kept = error
try:
    raise kept
except ValueError:
    wait()
""",
    "a method of a class with a wrong escape": """
class Loader:
    pattern = "\\d"

    @staticmethod
    def load():
        try:
            raise OSError("\\N{BULLET} it's \\
gone")
        except OSError: wait()

Loader.load()
""",
}
GOES_ON = {
    "finally": """
def step():
    try:
        raise KeyError("told")
    finally:
        wait()

step()
""",
    "a function that waits in finally": """
def leave():
    try:
        print("leaves")
    except ValueError:
        print("no")
    wait()

try: raise KeyError("told")
finally: leave()
""",
    "finally, though further out it is caught": """
try:
    try:
        raise KeyError("told")
    finally:
        wait()
except KeyError:
    pass
""",
    "finally, in which another one is caught": """
try:
    raise KeyError("told")
finally:
    try:
        raise OSError("not there")
    except OSError:
        wait()
""",
    "finally, after an except that raises another one": """
try:
    try:
        raise OSError("not there")
    except OSError:
        raise KeyError("told")
    finally:
        wait()
except KeyError:
    pass
""",
    "with": """
class Group:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        wait()

with open("/dev/null") as file, Group():
    raise KeyError("told")
""",
    "a context manager with finally": """
from contextlib import contextmanager

@contextmanager
def group():
    try:
        yield
    finally:
        wait()

with group():
    raise KeyError("told")
""",
    "an ExitStack": """
from contextlib import ExitStack

with ExitStack() as stack:
    stack.callback(wait)
    raise KeyError("told")
""",
    "an except that raises again": """
try:
    {}["told"]
except OSError:
    pass
except KeyError:
    print("saves")
    wait()
    raise
""",
    "an except that leaves": """
import sys

try:
    {}["told"]
except KeyError as error:
    if not error.args:
        print("odd")
    wait()
    sys.exit(1)
""",
    "a coroutine": """
import asyncio

async def train():
    try:
        raise KeyError("told")
    finally:
        wait()

asyncio.run(train())
""",
}
GROUPS = """
try:
    raise ExceptionGroup("two", [OSError("here"), KeyError("there")])
except* OSError:
    wait()
except* KeyError:
    pass
"""


@pytest.fixture(autouse=True)
def anew():
    """Forget what was judged: the same code in another file is equal."""
    pending.goes_on.cache_clear()


@pytest.fixture
def waits(tmp_path):
    """Return a function that runs a program; it returns what is pending at `wait()`."""

    def run(program: str, keep: bool = True) -> list[BaseException | None]:
        path, found = tmp_path / "train.py", []

        def wait():
            frame: FrameType | None = sys._getframe()
            found.append(pending.find(sys.exc_info()[1], frame))

        path.write_text(program)
        code = compile(program, str(path), "exec")
        if not keep:
            path.unlink()
        try:
            exec(code, {"wait": wait})
        except (KeyError, SystemExit):
            pass
        return found

    return run


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("program", CAUGHT.values(), ids=CAUGHT.keys())
def test_what_is_caught_is_not_told(waits, program):
    found = waits(program)
    assert found and not any(found)


@pytest.mark.parametrize("program", GOES_ON.values(), ids=GOES_ON.keys())
def test_what_goes_on_is_told(waits, program):
    (error,) = waits(program)
    assert isinstance(error, KeyError) and error.args == ("told",)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no except* yet")
def test_a_part_of_a_group_is_caught(waits):
    assert waits(GROUPS) == [None]


def test_a_program_without_its_source_tells_nothing(waits):
    assert waits(GOES_ON["finally"], keep=False) == [None]


def test_a_program_that_was_changed_meanwhile_tells_nothing(tmp_path):
    program = GOES_ON["finally"]
    path = tmp_path / "train.py"
    code = compile(program, str(path), "exec").co_consts[0]
    path.write_text(program)
    assert pending.goes_on(code, 4, 6)
    path.write_text("# a line more, as long as it runs\n" + program)
    linecache.clearcache()
    assert not pending.goes_on.__wrapped__(code, 4, 6)


def test_the_import_machinery_tells_nothing():
    code = compile("\n" * 9, "<frozen importlib._bootstrap>", "exec")
    assert not pending.goes_on(code, 1, 3)


def test_nothing_is_said_in_the_name_of_the_program(tmp_path):
    """Python warns of a wrong escape whenever it parses one."""
    path = tmp_path / "train.py"
    path.write_text("pattern = '\\d'\nraw = r'\\\\' '\\''\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(path.read_text(), str(path), "exec")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not pending.goes_on(code, 1, 1)
