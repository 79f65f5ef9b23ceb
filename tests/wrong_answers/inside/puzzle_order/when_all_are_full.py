def leave(full, left, send):
    if all(full):
        for number in range(left, len(full)):
            send(number)
