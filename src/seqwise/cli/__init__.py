"""The command line: one file per command, which parses its options and calls the library. Nothing imports from here."""
