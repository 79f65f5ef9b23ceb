"""Write every static figure to the repository's figs/: what `make figs` runs."""

from ddp_lab.kit import ROOT
from ddp_lab.kit.figures import FIGURES

for name, draw in FIGURES.items():
    (ROOT / "figs" / f"{name}.svg").write_text(str(draw()), encoding="utf-8")
print(f"{len(FIGURES)} figures are in figs/")
