def one_bit(gradient, owed):
    total = gradient + owed
    return total > 0, total.abs()
