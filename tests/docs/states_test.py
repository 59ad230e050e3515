#!/usr/bin/env python3
"""docs/states.md: every cell of its tables says something, and every test that it names exists.

  states_test.py ROOT
"""
import pathlib
import re
import sys


def rows_of(page):
    """(line number, cells) of each row of a table but its head."""
    before = ''
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith('|') and before.startswith('|') and not line.startswith('| ---'):
            yield number, [cell.strip() for cell in line.strip('|').split('|')]
        before = line


def main():
    root = pathlib.Path(sys.argv[1])
    page = (root / 'docs/states.md').read_text(encoding='utf-8')
    tests = set()
    for source in (root / 'tests').rglob('*_test.cc'):
        tests |= {f'{suite}.{name}' for suite, name in re.findall(
            r'^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)', source.read_text(encoding='utf-8'), re.M)}
    faults = []
    named = re.findall(r'`([A-Z]\w+\.[A-Z]\w+)`', page)
    for name in sorted(set(named) - tests):
        faults.append(f'{name}: no test has this name')
    columns = 0
    for number, cells in rows_of(page):
        columns = columns if len(cells) in (5, 7) else -1
        if columns < 0 or '' in cells:
            faults.append(f'line {number}: a cell is empty, or one too many')
    for fault in faults:
        print(fault)
    return 1 if faults or len(named) < 40 else 0


if __name__ == '__main__':
    sys.exit(main())
