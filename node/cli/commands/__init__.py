"""What the commands of the command line do, one file each; loaded when called, so that each starts quickly.

With `as_json` a command prints on stdout what the page of operators that it asks has answered (node/http/schemas.py),
or one object for each result, with the names that the text of the command has as headings.
"""
