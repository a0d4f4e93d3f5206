"""Links and anchors lead somewhere, mkdocs.yml lists every page, and commands name programs, flags, settings and files that
exist. The README's snippets come from tested examples, and every page gives the same number of mechanisms.

    docs_test.py BIN      BIN is the folder of the programs; those that were not built are skipped
"""
import functools
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.argv[1])
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("shaders/*.md"), *ROOT.glob("examples/**/*.md")])
TASKS = "translate summarize converse classify rate match tag embed_text recommend language_model".split()
problems = []


# --- Links

def without_code(text):
    return re.sub(r"`[^`]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def slugs(path):
    """The anchors of a page, as GitHub makes them; MkDocs makes the same of headings without odd signs."""
    seen = {}
    for heading in re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        yield slug if seen[slug] == 0 else f"{slug}-{seen[slug]}"


def check_links(page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            yield f"the link {target} leads nowhere"
        elif anchor and anchor not in list(slugs(there)):
            yield f"{there.name} has no heading for the link {target}"


# --- Commands

@functools.cache
def output(*command):
    """What a program prints."""
    return subprocess.run([str(BIN / command[0]), *command[1:]], capture_output=True, text=True).stdout


def flags_of(text):
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))


@functools.cache
def settings_of(task):
    return set(re.findall(r"^([a-z_0-9.]+) = ", output(task, "train", "--help-settings"), re.M))


@functools.cache
def variants():
    return set(re.findall(r"^([a-z_0-9]+) ", output("heed", "variants"), re.M)) - {"variant"}


def check_setting(task, value):
    name = value.partition("=")[0]
    if "=" not in value:
        return f"--set {value} sets nothing"
    if name in settings_of(task) or re.match(r"model\.[a-z_]*attention\.", name):
        return None
    return f"{task} has no setting {name}"


def check_command(words):
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if not words:
        return
    if words[0] == "./dev" and len(words) > 1 and f"./dev {words[1]}" not in (ROOT / "dev").read_text():
        yield f"./dev has no command {words[1]}"
    if words[0] == "python3" and len(words) > 1 and words[1].endswith(".py") and "/" in words[1]:
        script = ROOT / words[1]
        if not script.exists():
            yield f"there is no {words[1]}"
        else:
            own = words[2 : words.index("--")] if "--" in words else words[2:]
            known = script.read_text()
            yield from (f"{words[1]} has no flag {w}" for w in own if w.startswith("--") and f'"{w}"' not in known)
    at = next((i for i, w in enumerate(words) if w.startswith("build/bin/")), None)
    if at is None:
        return
    program, rest = words[at].rpartition("/")[2], words[at + 1 :]
    if not all((BIN / needed).exists() for needed in [program, "heed", *TASKS]):
        if not re.search(rf"\b{program}\b", "".join(p.read_text() for p in ROOT.glob("*/CMakeLists.txt"))):
            yield f"there is no program {program}"
        return
    if program == "heed_tests":
        return  # doctest's flags, and patterns
    command = [program]
    while rest and rest[0] in re.findall(r"^  ([a-z-]+)  ", output(*command, "--help").partition("Subcommands:")[2], re.M):
        command.append(rest.pop(0))
    known = flags_of(output(*command, "--help"))
    task = program
    if command[1:] == ["compare"] and "--task" in rest:
        task = rest[rest.index("--task") + 1]
        known |= flags_of(output(task, "train", "--help"))
    if program == "heed":
        known |= {"--version"}
    for i, word in enumerate(rest):
        following = rest[i + 1] if i + 1 < len(rest) else ""
        if word.startswith("-") and word != "-" and word.partition("=")[0] not in known:
            yield f"{' '.join(command)} has no flag {word}"
        elif word == "--set" and task in TASKS:
            yield check_setting(task, following)
        elif word == "--set" and following.partition(".")[0] not in variants():
            yield f"there is no variant for --set {following}"
        elif word in ("--attention", "--decoder-attention", "--variants"):
            names = set(following.split(",")) - {"all", "NAME", "dot_product_composed"} - variants()
            yield from (f"there is no attention {name}" for name in sorted(names) if name != "alibi")
        elif word == "--config" and following.startswith("examples/") and "NAME" not in following:
            if not (ROOT / following).exists():
                yield f"there is no {following}"


def commands_of(text):
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").replace("|\n", "| ").split("\n"):
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
            lexer.whitespace_split = True
            lexer.commenters = "" if line.startswith("#!") or "#SBATCH" in line else "#"
            words = []
            for word in [*lexer, ";"]:
                if set(word) <= set("|;&"):
                    yield words
                    words = []
                else:
                    words.append(word)


# --- What prose names: settings and files

def check_names(text, settings):
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        for name in re.findall(r"^((?:data|model|training|tokenizer|evaluation|decoding|news|user)\.[a-z_0-9.]+)(?![a-z_0-9.(])", code):
            if re.search(r"\.(json|tsv|safetensors|py|cpp|h|all|l)$", name) or re.match(r"model\.\w*attention\.", name):
                continue
            if name not in settings:
                yield f"there is no setting {name}"
        if re.fullmatch(r"(?!build|runs|RUN|OUT|P/|heed/)[a-z_.]+/[\w./-]+\.(cpp|h|def|py|json|glsl|comp|cmake|md|txt|sh|supp)", code):
            if not (ROOT / code).exists() and not (ROOT / "docs" / code).exists():
                yield f"there is no file {code}"


# --- Snippets and numbers

def is_quoted(block, example, language):
    """Whether an example has a block of Python, or the lines of another block in their order, whatever is between them."""
    if language == "python":
        return block in example.read_text()
    tested = map(str.strip, example.read_text().split("\n"))
    return all(line.strip() in tested for line in block.split("\n") if line.strip())


# Pages whose code must be in examples that tests run, with the languages that no other test of the page runs.
QUOTING = {"README.md": "python cpp c", "docs/start.md": "python cpp c", "docs/guides/cpp.md": "cpp",
           "docs/guides/from_pytorch.md": "cpp", "docs/guides/recipes.md": "cpp", "docs/reference/cpp.md": "cpp"}


def check_quotes(text, languages):
    for language, pattern in (("python", "python/*.py"), ("cpp", "embed/*.cpp"), ("c", "embed/*.c")):
        if language not in languages.split():
            continue
        for block in re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S):
            if not any(is_quoted(block, example, language) for example in (ROOT / "examples").glob(pattern)):
                yield f"no file of examples/{pattern} has this: {block}"


def check_numbers():
    """How many attention mechanisms there are, in every text that says so."""
    texts = [*PAGES, ROOT / "CMakeLists.txt", ROOT / "mkdocs.yml", ROOT / "docs/Doxyfile", ROOT / "cmake/package.cmake",
             *(ROOT / "bindings/python" / name for name in ["README.md", "pyproject.toml", "heed/__init__.py"])]
    for path in texts:
        for number in re.findall(r"(\d+) attention mechanisms", path.read_text()):
            if path.name != "CHANGELOG.md" and int(number) != len(variants()):
                yield f"{path.relative_to(ROOT)}: {number} attention mechanisms, not {len(variants())}"


def check_scripts():
    """The wheel starts every program."""
    scripts = set(re.findall(r'^(\w+) = "heed_programs:main"', (ROOT / "bindings/python/pyproject.toml").read_text(), re.M))
    if scripts != {*TASKS, "heed"}:
        yield f"bindings/python/pyproject.toml: {sorted(scripts ^ {*TASKS, 'heed'})} in scripts or programs alone"


def check_comparisons():
    """`heed compare` accepts every command of the experiments, and every configuration of an experiment is in one."""
    configs = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/configs/experiments/*")}
    if not configs:
        yield "there is no examples/configs/experiments"
    for words in commands_of((ROOT / "docs/explanation/experiments.md").read_text()):
        if words[:2] != ["build/bin/heed", "compare"]:
            continue
        configs -= set(words)
        # Without data no cell gets further than its settings, which are checked before any data is looked for.
        given = ["no/such/data" if word.startswith("../shared/data/") else word for word in words[2:]]
        given += ["--data", "no/such/data.tsv"] * (given == words[2:])
        given[given.index("--seeds") + 1] = "1"
        with tempfile.TemporaryDirectory() as folder:
            given[given.index("--out") + 1] = folder + "/out"
            said = subprocess.run([BIN / "heed", "compare", *given, "--jobs", "8", "--threads", "1"], cwd=ROOT,
                                  capture_output=True, text=True)
        if said.returncode != 1 or "no/such/data" not in said.stderr or "done" in said.stderr:
            yield f"heed compare refuses {' '.join(words[2:])}: {said.stderr}"
    yield from (f"docs/explanation/experiments.md: no command uses {config}" for config in sorted(configs))


def main():
    built = all((BIN / program).exists() for program in [*TASKS, "heed"])
    settings = set().union(*map(settings_of, TASKS)) if built else None
    listed = (ROOT / "mkdocs.yml").read_text()
    commands = links = 0
    for page in PAGES:
        text, name = page.read_text(), page.relative_to(ROOT).as_posix()
        found = list(check_links(page, text))
        links += len(re.findall(r"\]\(", text))
        if name.startswith("docs/") and f": {name[5:]}\n" not in listed:
            found.append("mkdocs.yml does not list it")
        for words in commands_of(text):
            commands += bool(words)
            found += [problem for problem in check_command(words) if problem]
        if settings and name != "CHANGELOG.md":
            found += check_names(text, settings)
        if name in QUOTING:
            found += check_quotes(text, QUOTING[name])
        problems.extend(f"{name}: {problem}" for problem in dict.fromkeys(found))
    problems.extend([*check_numbers(), *check_scripts(), *check_comparisons()] if built else ())
    if commands < 50 or links < 100:
        problems.append(f"only {commands} commands and {links} links were found: the test looked in the wrong place")
    print("\n".join(problems) if problems else f"{len(PAGES)} pages, {links} links, {commands} commands: all hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
