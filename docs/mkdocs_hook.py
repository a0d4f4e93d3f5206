"""Adapts the pages of docs/ to the site (mkdocs.yml): on GitHub they are read as they are.

- Code blocks in different languages that follow each other become tabs.
- Links to sources become plain text.
- The C++ reference that Doxygen wrote to build/reference is copied to reference/headers/ and linked from headers.md.
"""
import os
import pathlib
import re
import shutil

LANGUAGES = {"python": "Python", "cpp": "C++", "c": "C"}
BLOCK = r"^```(?:{})\n(?:.*\n)*?```\n".format("|".join(LANGUAGES))
DOXYGEN = pathlib.Path("build/reference/html")


def on_files(files, config):
    for file in list(files):
        if not file.src_path.endswith((".md", ".png")) and file.src_path in os.listdir(config["docs_dir"]):
            files.remove(file)
    return files


def tabs(blocks):
    """Returns the tabs of consecutive code blocks, or the blocks themselves if two have the same language."""
    parts = re.findall(BLOCK, blocks[0], re.M)
    names = [re.match("```(.*)", part)[1] for part in parts]
    if len(set(names)) < len(names):
        return blocks[0]
    return "\n".join(f'=== "{LANGUAGES[name]}"\n\n' + re.sub("^", "    ", part.rstrip(), flags=re.M) + "\n"
                     for name, part in zip(names, parts))


def on_page_markdown(markdown, page, config, files):
    def plain(link):
        target = os.path.normpath(os.path.join(os.path.dirname(page.file.src_path), link[2]))
        return link[1] if target.startswith("..") else link[0]

    markdown = re.sub(rf"(?:{BLOCK}\n*){{2,}}", tabs, markdown, flags=re.M)
    markdown = re.sub(r"\[([^\]]+)\]\(([^)#:]+)(?:#[^)]*)?\)", plain, markdown)
    if page.file.src_path == "reference/headers.md" and DOXYGEN.exists():
        markdown += '\n<a href="headers/index.html">The C++ reference, made from the headers</a>\n'
    return markdown


def on_post_build(config):
    if DOXYGEN.exists():
        shutil.copytree(DOXYGEN, pathlib.Path(config["site_dir"]) / "reference/headers", dirs_exist_ok=True)
