from operator import methodcaller

ASKED = {"scheduler": "state_dict", "average": "state_dict", "noise": "get_state"}


def forgotten(run):
    return {name: methodcaller(how)(vars(run)[name]) for name, how in ASKED.items()}
