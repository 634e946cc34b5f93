"""The command line, as tests call it."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from dpfedvis.cli.main import main

Done = subprocess.CompletedProcess[str]


def called(*arguments: str) -> Done:
    """Run a command in this process: a dozen new interpreters take their time."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(arguments, code, out.getvalue(), err.getvalue())


def once(*words: str) -> list[str]:
    """Return a command's words; of a flag that is there twice, the last with its values."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            parts.append([])
        parts[-1].append(word)
    names = [part[0].partition("=")[0] if part and part[0].startswith("--") else None for part in parts]
    last = {name: number for number, name in enumerate(names)}
    kept = [part for number, part in enumerate(parts) if names[number] is None or last[names[number]] == number]
    return [word for part in kept for word in part]


def started(*arguments: str, folder: Path | None = None, **options: object) -> Done:
    """Run a command in a new interpreter, as a shell does, in a folder."""
    command = [sys.executable, "-m", "dpfedvis", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options)


def examples(text: str) -> list[str]:
    """Return the commands of a help's examples, each on one line."""
    joined = re.sub(r" \\\n +", " ", text)
    return [line.split("  #")[0].rstrip() for line in re.findall(r"^  (dpfedvis .*)$", joined, flags=re.MULTILINE)]


def pasted(line: str, folder: Path) -> Done:
    """Run a line of a help as it stands, in a folder; what goes to a file is left there."""
    command, _, target = line.partition(" > ")
    name, *arguments = shlex.split(command)
    assert name == "dpfedvis"
    done = started(*arguments, folder=folder)
    if target:
        (folder / target).write_text(done.stdout)
    return done


def check_refused(done: Done, words: str) -> None:
    """Bad input is one plain line on standard error, with these words, and exit code 2."""
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dpfedvis")
    assert (done.stderr.count("\n"), done.stderr[-1]) == (1, "\n")
    assert words in done.stderr
