#!/usr/bin/env python3
"""Runs a program of the pages and compares its stdout with what its page shows.

  run_example.py PROGRAM EXPECTED STRATA

Numbers of processes, of ports and of milliseconds, names of hosts, and identities of buffers and
callables, are not compared. A program that looks at argv[1] is given the endpoint of a daemon,
which allows the libraries of its page.
A page that shows no output asks for exit code 0 alone.
"""
import contextlib
import difflib
import os
import pathlib
import re
import subprocess
import sys

import with_daemon


def plain(text):
    text = re.sub(r'\bpid \d+', 'pid N', text)
    text = re.sub(r'\b127\.0\.0\.1:\d+', 'HOST:PORT', text)
    text = re.sub(r'\bon host [\w.-]+', 'on host H', text)
    text = re.sub(r'\bafter \d+ ms', 'after N ms', text)
    text = re.sub(r'\bsha256:[0-9a-f]{64}', 'sha256:N', text)
    text = re.sub(r'\b[0-9a-f]{16}-\d', 'UID', text)
    return [line.rstrip() for line in text.strip().splitlines()]


def main():
    program, expected = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    env = {k: v for k, v in os.environ.items() if not k.startswith('STRATA_')}
    with contextlib.ExitStack() as stack:
        arguments = []
        if 'argv[1]' in expected.with_suffix('.cc').read_text(encoding='utf-8'):
            arguments = [stack.enter_context(with_daemon.daemon(sys.argv[3], program.parent, env))]
        ran = subprocess.run([program, *arguments], cwd=program.parent, env=env, text=True,
                             timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, check=False)
    if ran.returncode != 0:
        print(f'exit code {ran.returncode}\n{ran.stdout}{ran.stderr}')
        return 1
    if not expected.exists():
        return 0
    shown, told = plain(expected.read_text(encoding='utf-8')), plain(ran.stdout)
    for line in difflib.unified_diff(shown, told, 'the page', 'the program', lineterm=''):
        print(line)
    return 0 if shown == told else 1


if __name__ == '__main__':
    sys.exit(main())
