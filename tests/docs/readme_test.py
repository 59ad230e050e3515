#!/usr/bin/env python3
"""The first C++ block of README.md is examples/02_graph/graph.cc; what pages link exists."""
import pathlib
import re
import sys

import pages

root = pathlib.Path(sys.argv[1])
readme = (root / 'README.md').read_text(encoding='utf-8')
faults = []

block = re.search(r'```cpp\n(.*?)```', readme, re.S)
program = (root / 'examples/02_graph/graph.cc').read_text(encoding='utf-8')
program = re.sub(r'\A(?://[^\n]*\n)*', '', program)
if block is None or block.group(1).strip() != program.strip():
    faults.append('the first C++ block is not examples/02_graph/graph.cc')

pages = [root / 'README.md', *(root / 'docs').rglob('*.md')]
for page in pages + [*(root / 'examples').rglob('*.md')]:
    for link in pages.links_of(page.read_text(encoding='utf-8')):
        target, _, anchor = link.partition('#')
        if '://' in link:
            continue
        file = page.parent / target if target else page
        if not file.exists():
            faults.append(f'{page.relative_to(root)} links {link}, which does not exist')
        elif anchor and file.suffix == '.md':
            if anchor not in pages.anchors_of(file.read_text(encoding='utf-8')):
                faults.append(f'{page.relative_to(root)} links {link}: no heading has that anchor')

for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
