"""Write every figure to figs/: what `make figs` runs."""

from ddp_lab import ROOT
from figs import FIGURES

for name, draw in FIGURES.items():
    (ROOT / "figs" / f"{name}.svg").write_text(str(draw()), encoding="utf-8")
print(f"{len(FIGURES)} figures are in figs/")
