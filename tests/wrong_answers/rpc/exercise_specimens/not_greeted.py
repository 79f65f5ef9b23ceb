"""Both get a number, and nobody has greeted them."""


def enrol(name):
    with DOOR:
        number = len(GUESTS)
        time.sleep(0.05)
        GUESTS.append((number, f"welcome, {name[:1]}"))
