"""What a course needs beside the engine, which imports nothing from here."""
