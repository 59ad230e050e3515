#!/usr/bin/env python3
"""docs/reference: each entry has the one shape, and each public name has its entry.

  reference_test.py ROOT
"""
import pathlib
import re
import sys

import headers
import pages

PARTS = ('**Synopsis**', '**Arguments**', '**Result**', '**Not guaranteed**', '**Example**')
# Each function of these has a heading of its own; members of other types stand in their type's.
CLASSES = {'Worker', 'Orchestrator', 'RunHandle', 'Buffer', 'Chip', 'InnerOrchestrator', 'Call',
           'TaskArgs', 'TensorView', 'Error', 'Result'}
# In public headers for other headers' sake.
WITHOUT_ENTRY = {'InlineVector', 'STRATA_PUBLIC', 'Result::value_type'}


def entries_of(markdown):
    """(names, text) of each entry."""
    for heading, text in re.findall(r'^## (.*?)\n(.*?)(?=^## |\Z)', markdown, re.M | re.S):
        yield heading.replace('`', '').split(', '), text


def shape_faults(heading, text):
    places = [text.find(f'\n{part}') for part in PARTS]
    if -1 in places or places != sorted(places):
        yield f'{heading}: its parts are not {", ".join(PARTS)}, in this order'
        return
    if not text[:places[0]].strip():
        yield f'{heading}: no summary'
    for part, begin, end in zip(PARTS, places, places[1:] + [len(text)]):
        body = text[begin + 1 + len(part):end]
        if not body.strip(' :.\n'):
            yield f'{heading}: nothing under {part}'
        if part == '**Synopsis**' and not re.match(r'\n\n    \S', body):
            yield f'{heading}: the synopsis is not indented code'
        if part == '**Example**' and '```cpp' not in body:
            yield f'{heading}: no example in C++'


def faults_of(root):
    entries, owners = {}, {}
    folder = root / 'docs/reference'
    index = (folder / 'README.md').read_text(encoding='utf-8')
    for page in sorted(folder.glob('*.md')):
        if page.name == 'README.md':
            continue
        if f']({page.name})' not in index:
            yield f'README.md does not link {page.name}'
        for names, text in entries_of(page.read_text(encoding='utf-8')):
            yield from (f'{page.name}: {f}' for f in shape_faults(', '.join(names), text))
            for name in names:
                if name in entries:
                    yield f'{page.name}: {name} has another entry in {owners[name]}'
                entries[name], owners[name] = text, page.name
    called = headers.functions(root)
    public = {name for name, _ in headers.public_names(root)} - WITHOUT_ENTRY
    for name in sorted(public):
        owner, _, last = name.rpartition('::')
        if name in entries:
            continue
        if not owner:
            yield f'{name} has no entry'
        elif owner in CLASSES and last in called:
            yield f'{name}: a function without an entry'
        elif not re.search(rf'`{last}[`(]', entries.get(owner, '')):
            yield f'{name} is not named in the entry of {owner}'
    for name in sorted(set(entries) - public):
        yield f'{owners[name]}: {name} is no public name'
    guide = (root / 'docs/guide/README.md').read_text(encoding='utf-8')
    for page in sorted((root / 'docs/guide').glob('*.md')):
        if page.name != 'README.md' and f']({page.name})' not in guide:
            yield f'the guide\'s README.md does not link {page.name}'


def main():
    faults = list(faults_of(pathlib.Path(sys.argv[1])))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
