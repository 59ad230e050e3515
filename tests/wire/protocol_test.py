#!/usr/bin/env python3
"""protocol_test.py PROGRAM PAGE [--fix]: the tables of docs/protocol.md are those of the code."""
import difflib
import pathlib
import subprocess
import sys

BEGIN = '<!-- tables: from the code -->\n'
END = '<!-- end of tables -->\n'

program, page = sys.argv[1], pathlib.Path(sys.argv[2])
tables = subprocess.run([program], capture_output=True, text=True, check=True).stdout
text = page.read_text(encoding='utf-8')
begin = text.index(BEGIN) + len(BEGIN)
end = text.index(END)
if '--fix' in sys.argv:
    page.write_text(text[:begin] + tables + '\n' + text[end:], encoding='utf-8')
    sys.exit(0)
differences = list(difflib.unified_diff(text[begin:end].splitlines(), (tables + '\n').splitlines(),
                                        'docs/protocol.md', 'the code', lineterm=''))
print('\n'.join(differences))
sys.exit(1 if differences else 0)
