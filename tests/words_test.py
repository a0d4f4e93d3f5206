"""Keeps the documentation short and plain: words per page, words per sentence, doc comments that begin with "What", and
constructions that readers stumble over. It knows habits, not grammar: read each finding aloud.

    words_test.py [-v]      -v prints every finding, not the worst ten
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = "apps autograd backends base bench bindings core docs examples models shaders tests text training".split()
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).glob("**/*.md"))])
HEADERS = [header for folder in FOLDERS if folder != "tests" for header in sorted((ROOT / folder).glob("**/*.h"))]
NOT_PROSE = {"CHANGELOG.md", "settings.md"}  # a list of changes, a generated table

WORDS_IN_ALL = 32_250
WORDS_OF_A_GUIDE = 700  # without code and tables
WORDS_OF_A_SENTENCE = 30
# Findings that are allowed: some long sentences are lists, and some constructions are right.
ALLOWED = {"sentence": 5, "construction": 10, "comment": 0, "page": 0}

CONSTRUCTIONS = [
    r"\bwhat \w+( \w+)? of\b", r"\bthe same of\b", r"\bthose (that|which|of)\b", r"\b(is|are) said( to)?\b", r"\bof which\b",
    r"\bit is that\b", r"\bcomes? to \w+ing\b", r"\b(is|are) to be had\b", r"\bstands? for\b", r"\blikewise\b", r"\bnobody knows\b",
    r"\bas \w+ (has|have) (it|them)\b", r"\bvouch", r"\byardstick\b", r"\blent for\b",
]


def prose(text):
    """Returns the paragraphs and list items of a page, without code, tables and link targets."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"^    .*", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"^\|.*", "", text, flags=re.M)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n\s*[-*#\d]+[. ]", text)]


def sentences(paragraph):
    return re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"*\[(])", paragraph)


def findings():
    in_all = 0
    for page in PAGES:
        if page.name in NOT_PROSE:
            continue
        name = str(page.relative_to(ROOT))
        text = re.sub(r"<!-- (\w+): made by.*?<!-- end of \1 -->", "", page.read_text(), flags=re.S)
        words = len(text.split())
        in_all += words
        of_prose = len(" ".join(prose(text)).split())
        if "guides" in page.parts and of_prose > WORDS_OF_A_GUIDE:
            yield "page", of_prose, f"{name}: {of_prose} words; a guide has at most {WORDS_OF_A_GUIDE}"
        for sentence in (sentence for part in prose(text) for sentence in sentences(part)):
            if (length := len(sentence.split())) > WORDS_OF_A_SENTENCE:
                yield "sentence", length, f"{name}: a sentence of {length} words: {sentence}"
            for construction in CONSTRUCTIONS:
                if found := re.search(construction, sentence, re.I):
                    yield "construction", 0, f"{name}: \"{found[0]}\": {sentence}"
    if in_all > WORDS_IN_ALL:
        yield "page", in_all, f"{in_all} words in all pages; at most {WORDS_IN_ALL}"
    for header in HEADERS:
        for number, line in enumerate(header.read_text().splitlines(), 1):
            if re.match(r"\s*/// (What|The same)\b", line):
                yield "comment", 0, f"{header.relative_to(ROOT)}:{number}: {line.strip()}"


def main():
    found = collections.defaultdict(list)
    for kind, weight, text in findings():
        found[kind].append((weight, text))
    failed = False
    for kind, allowed in ALLOWED.items():
        worst = sorted(found[kind], key=lambda one: -one[0])
        print(f"{kind}: {len(worst)} findings, {allowed} allowed")
        for _, text in worst if "-v" in sys.argv else worst[:10]:
            print("   ", text)
        failed |= len(worst) > allowed
    sys.exit(failed)


if __name__ == "__main__":
    main()
