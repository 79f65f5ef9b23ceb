"""Write every figure, and every stepper, to figs/: what `make figs` runs."""

from ddp_lab import ROOT
from figs import FIGURES, STEPPERS

for name, draw in FIGURES.items():
    (ROOT / "figs" / f"{name}.svg").write_text(str(draw()), encoding="utf-8")
for name, steps in STEPPERS.items():
    page = ROOT / "figs" / "steps" / f"{name}.html"
    page.write_text(steps().page(), encoding="utf-8")
print(f"{len(FIGURES)} figures are in figs/, {len(STEPPERS)} steppers in figs/steps/")
