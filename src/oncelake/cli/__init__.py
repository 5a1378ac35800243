"""The command line: parse, call the public API, show the result."""
