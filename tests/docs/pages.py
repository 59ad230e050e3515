"""The pages of docs/: their headings, anchors, blocks of code and links."""

import dataclasses
import re

FENCE = re.compile(r'^```(\w*)\n(.*?)^```$', re.M | re.S)


@dataclasses.dataclass
class Block:
    page: str  # "guide/01-first-program"
    number: int  # of the page's C++ blocks, from 1
    line: int  # of its first line of code
    code: str
    text: str | None  # the ```text block that follows directly


def blocks_of(page, markdown):
    """Each C++ block, with the output that stands right below it."""
    found = [(m.group(1), m.start(), m.end(), m.start(2), m.group(2))
             for m in FENCE.finditer(markdown)]
    out = []
    for i, (language, _, end, begin, code) in enumerate(found):
        if language != 'cpp':
            continue
        text = None
        if i + 1 < len(found) and found[i + 1][0] == 'text':
            if not markdown[end:found[i + 1][1]].strip():
                text = found[i + 1][4]
        out.append(Block(page, len(out) + 1, markdown.count('\n', 0, begin) + 1, code, text))
    return out


def prose_of(markdown):
    """The page without its code."""
    return re.sub(r'`[^`\n]*`', '', FENCE.sub('', markdown))


def links_of(markdown):
    return re.findall(r'\]\(([^)\s]+)[^)]*\)', prose_of(markdown))


def anchors_of(markdown):
    """The anchors that a page's headings get where it is shown."""
    anchors = set()
    for heading in re.findall(r'^#+ (.*)$', FENCE.sub('', markdown), re.M):
        plain = re.sub(r'[^\w\- ]', '', heading.lower())
        anchors.add(plain.strip().replace(' ', '-'))
    return anchors


def table_of(markdown, name):
    """The cells of each row of the table below `<!-- names: name -->`, without its head."""
    rows, inside = [], False
    after = markdown.split(f'<!-- names: {name} -->', 1)
    for line in after[1].split('\n') if len(after) == 2 else []:
        if line.startswith('|'):
            inside = True
            rows.append([cell.strip() for cell in line.strip().strip('|').split('|')])
        elif inside:
            break
    return rows[2:]


def ticked(cell):
    """What stands in backticks in a cell."""
    return re.findall(r'`([^`]+)`', cell)
