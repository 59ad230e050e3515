#!/usr/bin/env python3
"""docs/cli.md against the program: each command has a section of the one shape, with its options.

  cli_test.py ROOT STRATA
"""
import pathlib
import re
import subprocess
import sys

PARTS = ('**Synopsis**', '**Options**', '**Output**', '**Exit codes**', '**Example**')


def help_of(program, *command):
    return subprocess.run([program, *command, '--help'], text=True, timeout=60, check=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout


def faults_of(name, section, text):
    """What is wrong with a command's section; `text` is its help."""
    places = [section.find(part) for part in PARTS]
    if -1 in places or places != sorted(places):
        yield f'{name}: its parts are not {", ".join(PARTS)}, in this order'
        return
    table = section[places[1]:places[2]]
    told = set(re.findall(r'^\| `(--[\w-]+)', table, re.M))
    has = set(re.findall(r'^ +(?:-\w,)?(--[\w-]+)', text, re.M)) - {'--help'}
    for option in sorted(told ^ has):
        yield f'{name}: {option} is in its {"table" if option in told else "help"} alone'
    synopsis = section[places[0]:places[1]]
    for option in sorted(has):
        if option not in synopsis:
            yield f'{name}: {option} is not in its synopsis'


def main():
    root, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    page = (root / 'docs/cli.md').read_text(encoding='utf-8')
    sections = {title: body for title, body in
                re.findall(r'^## strata ([\w-]+)\n(.*?)(?=^## |\Z)', page, re.M | re.S)}
    commands = re.findall(r'^  ([\w-]+) ', help_of(program).split('Commands:')[1], re.M)
    faults = [f'{name}: in the page or in the program alone' for name in
              sorted(set(sections) ^ set(commands))]
    for name in commands:
        if name in sections:
            faults += faults_of(name, sections[name], help_of(program, name))
    checks = subprocess.run([program, 'doctor', '--list'], text=True, timeout=60, check=True,
                            stdout=subprocess.PIPE).stdout
    table = sections['doctor'].split('**Output**')[1]
    listed = re.findall(r'^(\w+) ', checks, re.M)
    if re.findall(r'^\| `(\w+)` \|', table, re.M) != listed:
        faults.append('the checks of the doctor are not those of --list, in its order')
    for fault in faults:
        print(fault)
    return 1 if faults or not commands else 0


if __name__ == '__main__':
    sys.exit(main())
