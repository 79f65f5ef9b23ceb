"""`make setup` copies this to .venv/etc/ipython, where all kernels of .venv read it."""

get_config().InteractiveShellApp.extensions.append(  # type: ignore  # noqa: F821
    "ddp_lab.kit.cell.unloaded"
)
