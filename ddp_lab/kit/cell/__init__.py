"""What a cell of a notebook says: magics, programs, predictions, variants, plots."""
