#!/usr/bin/env python3
"""The first C++ block of README.md is examples/02_graph/graph.cc, and the files it links exist."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
readme = (root / 'README.md').read_text(encoding='utf-8')
faults = []

block = re.search(r'```cpp\n(.*?)```', readme, re.S)
program = (root / 'examples/02_graph/graph.cc').read_text(encoding='utf-8')
program = re.sub(r'\A(?://[^\n]*\n)*', '', program)
if block is None or block.group(1).strip() != program.strip():
    faults.append('the first C++ block is not examples/02_graph/graph.cc')

for page in [root / 'README.md', *(root / 'docs').glob('*.md'), *(root / 'examples').glob('*.md')]:
    prose = re.sub(r'```.*?```', '', page.read_text(encoding='utf-8'), flags=re.S)
    for target in re.findall(r'\]\(([^)#\s]+)[^)]*\)', re.sub(r'`[^`]*`', '', prose)):
        if '://' not in target and not (page.parent / target).exists():
            faults.append(f'{page.relative_to(root)} links {target}, which does not exist')

for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
