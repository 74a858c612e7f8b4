"""Checks of a client: each is a function; the ones that fail are named, and the others still run."""

import sys
import traceback


class Checks:
    def __init__(self):
        self.all = []

    def __call__(self, function):
        """Registers a check."""
        self.all.append(function)
        return function

    def run(self, *arguments, before=None):
        """Runs all checks and ends the program. `before` mends what a check has left."""
        failed = 0
        for function in self.all:
            try:
                if before:
                    before()
                function(*arguments)
            except Exception as error:  # each check is judged alone
                failed += 1
                name = function.__name__.replace("_", " ")
                last = traceback.extract_tb(error.__traceback__)
                lines = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in last]
                print(f"  failed: {name}: {type(error).__name__}: {str(error).strip()} [{lines[0]}]", flush=True)
        print(f"  {len(self.all) - failed} of {len(self.all)} checks")
        sys.exit(1 if failed else 0)


def equal(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


def is_refused(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")
