"""The public names of include/strata/*.h, read just well enough for code of this layout."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'tidy'))
import cxx  # noqa: E402  (the C++ reader of tests/tidy)

# Named in public headers and nobody's to use: docs/names.md says so.
NOBODYS = {'WorkerCore', 'Impl'}
WITHOUT_MEMBERS = re.compile(r'InlineVector|strata_\w+')  # call.h lists the fields of the C ABI
WORD = r'[A-Za-z_]\w*'


def matching(text, at):
    """The place of the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {'{': 1, '}': -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError('a brace that nothing closes')


def statements(text):
    """(head, body or None) of each declaration at this depth."""
    head, i = '', 0
    while i < len(text):
        c = text[i]
        if c == ';':
            yield head, None
            head = ''
        elif c == '{':
            end = matching(text, i)
            after = text[end + 1:].lstrip()[:1]
            is_initialiser = re.search(r'[\w>\]=]\s*$', head) and '(' not in plain(head)
            is_type = re.search(r'\b(?:class|struct|enum|namespace|extern)\b', plain(head))
            if after in (',', '{') or (is_initialiser and not is_type):
                head += '{}'  # of a member, or of a constructor's list
            elif plain(head).startswith('typedef '):
                yield head, text[i + 1:end]
                head = 'friend'  # its name once more, and a semicolon
            else:
                yield head, text[i + 1:end]
                head = 'friend' if is_type and after == ';' else ''
            i = end
        else:
            head += c
        i += 1


def without_templates(text):
    while True:
        shorter = re.sub(r'<[^<>]*>', '', text)
        if shorter == text:
            return text
        text = shorter


def plain(head):
    """Without access labels, attributes, templates and requirements."""
    head = re.sub(r'\b(?:public|private|protected)\s*:', ' ', head)
    head = re.sub(r'__attribute__\(\(.*?\)\)+|\[\[\w+\]\]|\bSTRATA_PUBLIC\b', ' ', head)
    head = without_templates(head.replace('->', ' ').replace('<=', ' ').replace('>=', ' '))
    head = re.sub(r'^\s*(?:template\s*)+', ' ', head)
    head = re.sub(r'\brequires\b\s*(?:\((?:[^()]|\([^()]*\))*\)|\w+(?:::\w+)*)'
                  r'(?:\s*(?:\|\||&&)\s*!?\w+(?:::\w+)*)*', ' ', head)
    return ' '.join(head.split())


def name_of(head):
    """The name that a declaration of a function or a variable gives; None: of none of ours."""
    text = plain(head)
    if not text or re.match(r'(?:friend|static_assert|public|using namespace)\b', text):
        return None
    if re.search(r'\boperator\b', text) or '~' in text.split('=')[0]:
        return None
    alias = re.match(rf'using ({WORD}) =', text)
    if alias:
        return alias.group(1)
    pointer = re.match(rf'typedef .*\(\*\s*({WORD})\)', text)
    if pointer:
        return pointer.group(1)
    text = re.sub(r'\bexplicit\b|\bextern\b', ' ', text.replace('decltype(auto)', 'auto'))
    before = text.split('=')[0].split('(')[0] if '(' in text.split('=')[0] else text.split('=')[0]
    names = re.findall(rf'(?:{WORD}::)*{WORD}', re.sub(r'\[.*?\]|\{{\}}|:\s*\d+', '', before))
    # One word alone is a constructor; a qualified one is defined here and declared elsewhere.
    return names[-1] if len(names) > 1 and '::' not in names[-1] else None


def names_in(text, prefix='', access='public'):
    for head, body in statements(text):
        labels = re.findall(r'\b(public|private|protected)\s*:(?!:)', head)
        access = labels[-1] if labels else access
        if access != 'public':
            continue
        short = plain(head)
        if body is not None and re.match(r'(?:inline )?namespace\b|extern\b', short):
            if 'detail' not in short:
                yield from names_in(body, prefix)
            continue
        kind = re.match(rf'(?:typedef )?(class|struct|enum class|enum) ({WORD})', short)
        if kind and body is None and not re.match(r'\s*template', head):
            continue  # said before it is defined
        if kind and '(' not in short.split(':')[0]:
            name = kind.group(2)
            specialised = re.search(rf'\b{name}\s*<', head)
            if specialised or name in NOBODYS or short.startswith('friend'):
                continue
            yield prefix + name
            if body is None or WITHOUT_MEMBERS.fullmatch(name):
                continue
            if kind.group(1).startswith('enum'):
                for one in re.findall(rf'({WORD})\s*(?:=[^,]*)?(?:,|$)', body.strip()):
                    yield f'{prefix}{name}::{one}'
                continue
            inside = 'private' if kind.group(1) == 'class' else 'public'
            yield from names_in(body, f'{prefix}{name}::', inside)
            continue
        name = name_of(head)
        own = prefix.split('::')[-2] if prefix else None
        if name and name != own and name not in NOBODYS:
            yield prefix + name


def public_names(root):
    """{(name, header)} of all that a user may write."""
    out = set()
    for header in sorted((root / 'include/strata').glob('*.h')):
        code = cxx.strip(header.read_text(encoding='utf-8'))
        for macro in re.findall(r'^#define (STRATA_\w+)', code, re.M):
            out.add((macro, header.name))
        for name in names_in(cxx.strip_preprocessor(code)):
            out.add((name, header.name))
    return out


def functions(root):
    """The public names that are functions."""
    found = set()
    for header in (root / 'include/strata').glob('*.h'):
        code = cxx.strip_preprocessor(cxx.strip(header.read_text(encoding='utf-8')))
        found.update(re.findall(r'(\w+)\s*\(', code))
    return found
