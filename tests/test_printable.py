"""Characters that a terminal or a browser obeys or hides become visible; honest text of any language stays."""

from __future__ import annotations

import json
import unicodedata
from html import unescape
from xml.etree import ElementTree

import pytest

from seqwise.cli import console
from seqwise.printable import escape_json, escape_xml, make_printable

SHOWN = {
    "\x1b[31mred\x1b[0m": "␛[31mred␛[0m",
    "\x1b]8;;http://a.b\x1b\\link": "␛]8;;http://a.b␛\\link",
    "\x00\x07\x08\x0b\x0c\r": "␀␇␈␋␌␍",
    "\x7f\x80\x9b1m\x9f": "␡⟨U+0080⟩⟨U+009B⟩1m⟨U+009F⟩",
    "\u202aa\u202eb\u202c": "⟨U+202A⟩a⟨U+202E⟩b⟨U+202C⟩",
    "\u2066\u2069\u200e\u200f\u061c": "⟨U+2066⟩⟨U+2069⟩⟨U+200E⟩⟨U+200F⟩⟨U+061C⟩",
    "a\u200bb\u2060\ufeff": "a⟨U+200B⟩b⟨U+2060⟩⟨U+FEFF⟩",
    "\ud800 \udc80": "⟨U+D800⟩ ⟨U+DC80⟩",
    "\ufffe\uffff": "⟨U+FFFE⟩⟨U+FFFF⟩",
    "\U000e0001\U000e0041": "⟨U+E0001⟩⟨U+E0041⟩",
}
HONEST = [
    "naïve e\u0301 größer",
    "می\u200cخواهم",  # Persian needs the non-joiner
    "क्\u200dष",
    "👩\u200d👩\u200d👧 ❤\ufe0f 👍🏽 🇩🇪",
    "שלום עולם مرحبا",
    "日本語 ⿰ 𠮷",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # the flag of Scotland
    "soft\u00adhyphen and a\u00a0space",
    "␛ ⟨U+202E⟩",
]


@pytest.mark.parametrize(("text", "shown"), SHOWN.items(), ids=ascii)
def test_characters_that_are_obeyed_or_hidden_become_visible(text: str, shown: str):
    assert make_printable(text) == make_printable(text, is_line=True) == shown


@pytest.mark.parametrize("text", HONEST, ids=ascii)
def test_honest_text_stays(text: str):
    assert make_printable(text) == make_printable(text, is_line=True) == text


def test_line_breaks_stay_except_where_a_text_must_stay_on_one_line():
    assert make_printable("a\n\tb\u2028") == "a\n\tb⟨U+2028⟩"
    assert make_printable("a\n\tb\u2028", is_line=True) == "a↵⇥b↵"


def test_no_control_character_and_no_control_of_the_direction_is_left():
    controls = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")]
    directions = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    controls += [chr(code) for code in range(0x2FFF) if unicodedata.bidirectional(chr(code)) in directions]
    assert len(controls) > 2100
    assert all(make_printable(each, is_line=True).isprintable() for each in controls)


@pytest.mark.parametrize("text", [*SHOWN, *HONEST, "<b a='1'>&\"\n"], ids=ascii)
def test_any_text_is_valid_in_xml(text: str):
    element = ElementTree.fromstring(f'<a b="{escape_xml(text)}">{escape_xml(text)}</a>')
    assert element.text == element.get("b") == make_printable(text, is_line=True) == unescape(escape_xml(text))


@pytest.mark.parametrize("text", [*SHOWN, *HONEST], ids=ascii)
def test_a_json_document_keeps_its_values_and_has_no_unsafe_character(text: str):
    document = escape_json(json.dumps({text: [text, "\n"]}, ensure_ascii=False, indent=1))
    assert json.loads(document) == {text: [text, "\n"]}
    assert make_printable(document) == document


def test_the_console_offers_the_same_function():
    assert console.make_printable is make_printable
