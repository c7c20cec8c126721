"""The word check finds each kind of departure, and passes plain text."""

import ast

import pytest

from lint.plain_english import document, names, paragraphs, phrases, python, sentences

WIRE = frozenset({"held_ns"})


def problems(source: str) -> list[str]:
    return [place.problem for place in python("module.py", source, WIRE)]


@pytest.mark.parametrize("start", ["What the hub stores.", "Whether it is full.", "Of a shard: its name.", "As JSON."])
def test_a_docstring_that_starts_with_a_noun_clause_is_found(start):
    assert len(problems(f'def limit():\n    """{start}"""')) == 1


def test_a_docstring_of_verb_and_object_passes():
    assert problems('def drain():\n    """Drain every decoder\'s socket."""') == []


@pytest.mark.parametrize("name", ["found", "held", "told_at", "_kept", "tellStatus"])
def test_a_name_that_says_too_little_is_found(name):
    assert len(problems(f"{name} = 1")) == 1


@pytest.mark.parametrize("name", ["held_ns", "founder", "older", "token"])
def test_names_on_the_wire_and_longer_words_pass(name):
    assert problems(f"{name} = 1") == []


def test_parameters_attributes_and_aliases_are_names():
    places = list(names("module.py", ast.parse("import x as one\ndef f(told): self.kept = told"), WIRE))
    assert [place.line for place in places] == [1, 2, 2]


def test_a_method_named_by_a_verb_in_the_third_person_is_found():
    assert len(problems("class Gate:\n    def admits(self): pass")) == 1


def test_a_comment_and_a_message_are_text_and_a_key_is_not():
    banned = "stood"
    assert len(problems(f'# it {banned} here\nraise ValueError("the hub {banned} still")')) == 2
    assert problems('row["told"] = 1') == []


def test_a_phrase_is_found_with_its_line_and_a_remedy():
    (place,) = phrases("page.md", 3, "fine\nit is kept for a day")
    assert (place.line, "stored" in place.problem) == (4, True)


def test_a_test_name_of_more_than_80_characters_is_found():
    assert len(problems(f"def test_{'a' * 80}(): pass")) == 1


def test_paragraphs_leave_code_out_and_count_each_item():
    text = "# Head\nOne line\nand another.\n\n```\ncode\n```\n- an item\n  of two lines\n- next\n\n| a | b |\n"
    assert list(paragraphs(text)) == [
        (1, "heading", "# Head"),
        (2, "prose", "One line and another."),
        (8, "item", "- an item of two lines"),
        (10, "item", "- next"),
        (12, "row", "| a | b |"),
    ]


def test_code_and_links_count_as_one_word():
    assert sentences("Run `make up now`. See [the page](a b c).") == [2, 3]


def test_long_sentences_and_paragraphs_of_a_document_are_found():
    assert "31 words" in "".join(map(str, document("page.md", "word " * 31)))
    assert "90 words" in "".join(map(str, document("page.md", "three words here. " * 30)))
    assert list(document("page.md", "Two words. " * 10)) == []
