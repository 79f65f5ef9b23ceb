def leave(full, left, send):
    for number in range(left, len(full)):
        if full[number]:
            send(number)
