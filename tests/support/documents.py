"""Small documents of the formats that are not plain text."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def write_pdf(path: Path, pages: Sequence[str], title: str = "") -> Path:
    """A PDF with a line of text on each page."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {count} /Kids [{kids}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        fonts = "/Resources << /Font << /F1 3 0 R >> >>"
        objects += [
            f"<< /Type /Page /Parent 2 0 R {fonts} /Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    objects.append(f"<< /Title ({title}) >>")
    body, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    body += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    body += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\n"
    body += f"startxref\n{body.index('xref')}\n%%EOF\n"
    path.write_bytes(body.encode("latin-1"))
    return path


def write_word(path: Path, body: str, *, title: str = "", before: str = "") -> Path:
    """A Word document; `body` is its XML, in which `w:` is declared."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "word/document.xml",
            f"<?xml version='1.0'?>{before}<w:document {_W}><w:body>{body}</w:body></w:document>",
        )
        if title:
            archive.writestr(
                "docProps/core.xml",
                '<c:p xmlns:c="urn:c" xmlns:dc="http://purl.org/dc/elements/1.1/">'
                f"<dc:title>{title}</dc:title></c:p>",
            )
    return path


def paragraph(text: str, style: str = "", before: str = "") -> str:
    """A paragraph of Word."""
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r>{before}<w:t>{text}</w:t></w:r></w:p>"
