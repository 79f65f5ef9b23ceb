"""The command `whichrank`."""
