"""Serve the book to this machine, and open it: python book/serve.py

Opened as files, the search would find pages and show no line of them.
"""

import webbrowser
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BOOK = Path(__file__).resolve().parents[1] / "build" / "book"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and prints no line for each."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=BOOK))
    address = f"http://127.0.0.1:{server.server_port}/README.html"
    print(f"the book is at {address} until you press Ctrl-C", flush=True)
    webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        server.serve_forever()
