#!/usr/bin/env python3
"""docs/names.md against include/strata/*.h: a row for each public name, and no other.

  names_test.py ROOT
"""
import pathlib
import re
import sys

import headers
import pages


def faults_of(root):
    names = (root / 'docs/names.md').read_text(encoding='utf-8')
    rows = [(pages.ticked(cells[0])[0], header) for cells in pages.table_of(names, 'public')
            for header in pages.ticked(cells[1])]
    told, has = set(rows), headers.public_names(root)
    for name, header in sorted(has - told):
        yield f'{name} of {header} has no row'
    for name, header in sorted(told - has):
        yield f'the row of {name}: {header} has no such public name'
    seen = set()
    for name, header in rows:
        if (name, header) in seen:
            yield f'{name} has two rows'
        seen.add((name, header))
        owner = name.rpartition('::')[0]
        if owner and not any(other == owner for other, _ in seen):
            yield f'the row of {name} stands before that of {owner}'
    for cells in pages.table_of(names, 'planned'):
        for name in pages.ticked(cells[0]):
            if any(other.rpartition('::')[2] == name for other, _ in has):
                yield f'{name} is planned, and is there'
    commands = [pages.ticked(cells[0])[0] for cells in pages.table_of(names, 'commands')]
    cli = (root / 'docs/cli.md').read_text(encoding='utf-8')
    if sorted(commands) != sorted(re.findall(r'^## strata (\w+)$', cli, re.M)):
        yield 'the commands are not those of cli.md'
    if len(has) < 200 or not commands:
        yield f'only {len(has)} names and {len(commands)} commands were found'


def main():
    faults = list(faults_of(pathlib.Path(sys.argv[1])))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
