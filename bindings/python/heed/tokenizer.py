"""The tokenizer of a run, and chat templates."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from . import _library as lib

if TYPE_CHECKING:
    from .run import Run

Place = Tuple[int, int]


class Tokenizer:
    """The tokenizer of a run: ``run.tokenizer``, or ``run.target_tokenizer`` for the texts that it writes.

    >>> run.tokenizer.decode(run.tokenizer.encode("the cats see"))
    >>> max(run.tokenizer.count(texts))

    ``len()`` is the number of ids. A list, array or Series of texts gives a list. ``add_special_tokens`` adds what the
    model reads around a text: an encoder's marks, such as [CLS] and [SEP], and prompt; the end mark of a source; the
    begin mark of a language model, if the text lacks it. Special tokens in a text become their ids. No text is cut.
    """

    def __init__(self, run: "Run", of_outputs: bool) -> None:
        self._run, self._of_outputs = run, of_outputs
        found = lib.result_json("heed_run_tokenizer", run, int(of_outputs))
        self._size, marks = found["size"], found["marks"]
        self.special_tokens: Dict[str, int] = found["special"]  #: The special tokens with their ids.
        self.bos_token_id: Optional[int] = marks["bos"]  #: The id of the mark that begins texts.
        self.eos_token_id: Optional[int] = marks["eos"]  #: The id of the mark that ends texts.
        self.pad_token_id: Optional[int] = marks["pad"]  #: The id of padding.
        self.unk_token_id: Optional[int] = marks["unk"]  #: The id of unknown words.
        self.mask_token_id: Optional[int] = marks["mask"]  #: The id of masks.

    def __len__(self) -> int:
        return int(self._size)

    def __repr__(self) -> str:
        return f"<heed.Tokenizer of a {self._run.task} run, {len(self):,} tokens>"

    def _encoded(self, texts: Any, marks: bool, spelled: bool = False) -> List[Dict[str, Any]]:
        return self._run._encoded(texts, int(self._of_outputs), int(marks), int(spelled))

    def encode(self, text: Any, add_special_tokens: bool = True) -> Any:
        """Returns the ids of a text or, in lists, of each. Raises heed.Error for characters that a language model lacks."""
        ids = [found["ids"] for found in self._encoded(text, add_special_tokens)]
        return ids[0] if isinstance(text, str) else ids

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Returns the text of ids (integers, an array, a tensor), or of each list of them. Raises heed.BadArgument for an
        id outside the vocabulary. Bytes that are no text become U+FFFD.
        """
        given = ids.tolist() if hasattr(ids, "tolist") else ids
        if isinstance(given, (str, bytes, Mapping)):
            raise TypeError(f"ids is {lib.shown(ids)}; expected integers")
        given = list(given) if hasattr(given, "__iter__") else [given]
        if given and hasattr(given[0], "__iter__"):
            return [self.decode(row, skip_special_tokens) for row in given]
        return self._run._called("decode", lib.longs(given), len(given), int(self._of_outputs), int(not skip_special_tokens))

    def count(self, text: Any, add_special_tokens: bool = True) -> Any:
        """Returns the number of tokens of a text, or of each text."""
        counts = [len(found["ids"]) for found in self._encoded(text, add_special_tokens)]
        return counts[0] if isinstance(text, str) else counts

    def tokenize(self, text: str, add_special_tokens: bool = False) -> List[str]:
        """Returns the tokens of a text as the tokenizer's file spells them: "##s", "Ġthe", "▁the"."""
        return list(self._encoded([text], add_special_tokens, spelled=True)[0]["tokens"])

    def offsets(self, text: str, add_special_tokens: bool = True) -> List[Tuple[int, int]]:
        """Returns the place of each token: it spells text[begin:end], in any case or accents, without spaces around it.
        What is added around the text has (0, 0); unknown tokens in a row may share a place. Raises heed.Error for a token
        that is not in the text.
        """
        found = self._encoded([text], add_special_tokens, spelled=True)[0]
        return _places(text, found["ids"], [*map(bytes, found["bytes"])], set(self.special_tokens.values()), self.unk_token_id)


def _folded(text: str) -> str:
    """Returns a text without what normalisers of tokenizers change: case, accents, compatibility forms, spaces."""
    plain = unicodedata.normalize("NFKD", "".join(map(str.casefold, text)))
    return re.sub(r"[\s▁]", " ", "".join(character for character in plain if not unicodedata.combining(character)))


def _places(text: str, ids: List[int], pieces: List[bytes], special: Set[int], unknown: Optional[int]) -> List[Place]:
    """Returns the place in the text of each token, which spells a piece."""
    parts = [_folded(character) for character in text]
    folded, character_at = "".join(parts), [i for i, part in enumerate(parts) for _ in part] + [len(text)]
    places, at, waiting, group, joined = [(0, 0)] * len(ids), 0, [], [], b""  # type: ignore[var-annotated]

    def span(begin: int, end: int) -> Place:
        return (character_at[begin], max(character_at[end - 1] + 1, character_at[end])) if end > begin else (0, 0)

    def find(piece: str) -> Optional[Place]:
        """Finds a piece after spaces and what normalisers remove or, after unknown tokens, anything."""
        bare = piece.strip(" ")
        begin = at if bare or not waiting else folded.find(piece, len(folded) - len(folded[at:].lstrip(" ")))
        while 0 <= begin < len(folded):
            for wanted in (bare or piece, bare[2:] if bare.startswith("##") else ""):
                if wanted and folded.startswith(wanted, begin):
                    return begin, begin + len(wanted)
            if not bare or not (waiting or folded[begin] == " " or unicodedata.category(folded[begin]) in ("Cc", "Cf", "Mn")):
                break
            begin += 1
        return None

    def place_unknown(end: int) -> None:
        cuts = [[span(at + one.start(), at + one.end()) for one in re.finditer(kind, folded[at:end])] for kind in (r"\S+", r"\w+|[^\w\s]")]
        region = (cuts[0][0][0], cuts[0][-1][1]) if cuts[0] else (0, 0)
        for i, place in zip(waiting, next((words for words in cuts if len(words) == len(waiting)), [region] * len(waiting))):
            places[i] = place
        waiting.clear()

    for i, (token, piece) in enumerate(zip(ids, pieces)):
        if token == unknown:
            waiting.append(i)
            continue
        group.append((i, len(joined), len(joined) + len(piece)))
        joined += piece
        try:
            whole = joined.decode()
        except UnicodeDecodeError:  # a character of several tokens
            continue
        found = find(_folded(whole))
        if whole and not _folded(whole):  # marks alone
            mark = text.find(whole, places[i - 1][0])
            places[i] = (mark, mark + len(whole)) if mark >= 0 else (0, 0)
        elif found:
            place_unknown(found[0])
            at, (begin, end) = found[1], span(*found)
            are_parts, before = len(group) > 1 and text.startswith(whole.strip(), begin), begin - len(whole) + len(whole.lstrip())
            for j, first, last in group:
                first, last = before + len(joined[:first].decode("utf-8", "ignore")), before + len(joined[:last].decode("utf-8", "replace"))
                places[j] = (max(begin, first), last) if are_parts else (begin, end)
        elif whole.strip() and token not in special:
            raise lib.Error(f"offsets: the tokenizer changes the text: the token {whole!r} is not in it after character {character_at[at]}")
        group, joined = [], b""
    place_unknown(len(folded))
    return places


def chat_text(folder: str, messages: Sequence[Mapping[str, Any]], template: Optional[str], values: Mapping[str, Any]) -> str:
    """Renders the chat template of a published folder, or another one, as ``transformers`` does."""
    if isinstance(messages, str) or not all(isinstance(one, Mapping) and "role" in one for one in messages):
        raise TypeError(f"messages is {lib.shown(messages)}; expected a list of {{\"role\": \"user\", \"content\": \"...\"}}")
    try:
        import jinja2.ext
        import jinja2.sandbox
    except ImportError as error:
        raise lib.Error("chat templates need the package jinja2, which is not installed: pip install jinja2") from error
    config: Dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    found: Any = config.get("chat_template") if template is None else template
    if isinstance(found, list):  # several, by name
        found = {one["name"]: one["template"] for one in found}.get("default")
    if template is None and os.path.exists(os.path.join(folder, "chat_template.jinja")):
        with open(os.path.join(folder, "chat_template.jinja"), encoding="utf-8") as file:
            found = file.read()
    if found is None:
        raise lib.Error(f"{folder!r} has no chat template, neither chat_template.jinja nor \"chat_template\" in "
                        "tokenizer_config.json: give one as chat_template=, or write the prompt and use generate()")

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    made.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)  # jinja2's own escapes for HTML
    made.globals.update(raise_exception=raise_exception, strftime_now=lambda layout: datetime.datetime.now().strftime(layout))
    marks = {name: value["content"] if isinstance(value, Mapping) else value
             for name, value in config.items() if name.endswith("_token") and value}
    given = {"tools": None, "documents": None, "add_generation_prompt": True, **marks, **values, "messages": messages}
    try:
        return str(made.from_string(found).render(given))
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise lib.Error(f"the chat template of {folder!r} refused the messages: {error}") from error
