"""What a cell of a notebook says: the magics, predictions, variants, plots."""
