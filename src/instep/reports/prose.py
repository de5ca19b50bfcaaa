"""The little Markdown that pages of rules are written in, as HTML and in short."""

from __future__ import annotations

import re

from instep.rules.registry import rule

_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")


def html_of(text: str) -> str:
    r"""Return paragraphs, code blocks, `code` and **strong** words as HTML.

    >>> print(html_of("Divide by `n`.\n\n    loss = loss / n"))
    <p>Divide by <code>n</code>.</p>
    <pre><code>loss = loss / n</code></pre>
    """
    blocks = (block for block in re.split(r"\n\s*\n", text.strip("\n")) if block.strip())
    return "\n".join(_block(block) for block in blocks)


def remedy(page: str) -> tuple[str, str]:
    r"""Return what a page says to do, and what happens without it; each may be empty.

    >>> remedy("INS1 name\n\nIt is wrong.\n\n**Fix.** Do it.\n\n**When it is fine.** Never.")
    ('Do it.', 'It is wrong.\n\n**When it is fine.** Never.')
    """
    _, _, body = page.partition("\n")
    before, found, rest = body.partition("**Fix.**")
    if not found:
        return "", body.strip()
    fix, mark, fine = rest.partition("**When it is fine.**")
    return fix.strip(), f"{before.strip()}\n\n{mark}{fine}".strip()


def in_short(code: str) -> str | None:
    """Return what a rule's page says to do, up to the end of its first clause.

    >>> in_short("INS505"), in_short("INS000")
    ('Find what makes it.', None)
    """
    found = rule(code)
    fix, _ = remedy(found.__doc__ or "") if found is not None else ("", "")
    text = " ".join(fix.partition("\n\n")[0].split())
    for end in re.finditer(r"[.:](?=\s|$)", text):
        clause = text[: end.start()]
        if clause.count("`") % 2 == 0 and clause.count("(") == clause.count(")"):
            return f"{clause}."
    return None


def _block(block: str) -> str:
    lines = block.split("\n")
    if all(line.startswith("    ") for line in lines):
        code = "\n".join(line[4:] for line in lines)
        return f"<pre><code>{escape(code)}</code></pre>"
    if all(line.startswith(("- ", "  ")) for line in lines) and lines[0].startswith("- "):
        items = re.split(r"\n- ", block[2:])
        return "<ul>" + "".join(f"<li>{inline(' '.join(i.split()))}</li>" for i in items) + "</ul>"
    return f"<p>{inline(' '.join(block.split()))}</p>"


def inline(text: str) -> str:
    """Return one line of text as HTML.

    >>> inline("the update of `a<b`")
    'the update of <code>a&lt;b</code>'
    """
    said, end = [], 0
    for found in _INLINE.finditer(text):
        said.append(escape(text[end : found.start()]))
        code, strong = found.groups()
        said.append(
            f"<code>{escape(code)}</code>" if code else f"<strong>{escape(strong)}</strong>"
        )
        end = found.end()
    return "".join(said) + escape(text[end:])


def escape(text: str) -> str:
    """Return a text as HTML shows it."""
    from html import escape  # noqa: PLC0415  # slow to load, and no terminal needs it

    return escape(text)
