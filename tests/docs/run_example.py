#!/usr/bin/env python3
"""Runs a program of the pages and compares its stdout with what its page shows.

  run_example.py PROGRAM EXPECTED

Process numbers are compared as "pid N". A page that shows no output asks for exit code 0 alone.
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys


def plain(text):
    return re.sub(r'\bpid \d+', 'pid N', text).strip().splitlines()


def main():
    program, expected = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    env = {k: v for k, v in os.environ.items() if not k.startswith('STRATA_')}
    ran = subprocess.run([program], cwd=program.parent, env=env, text=True, timeout=120,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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
