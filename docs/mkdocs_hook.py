"""What MkDocs does beside making pages of docs/ (mkdocs.yml): links to sources become plain text, and files that are
not pages stay out of the site."""
import os
import re


def on_files(files, config):
    for file in list(files):
        if not file.src_path.endswith((".md", ".png")) and file.src_path in os.listdir(config["docs_dir"]):
            files.remove(file)
    return files


def on_page_markdown(markdown, page, config, files):
    def plain(link):
        target = os.path.normpath(os.path.join(os.path.dirname(page.file.src_path), link[2]))
        return link[1] if target.startswith("..") else link[0]

    return re.sub(r"\[([^\]]+)\]\(([^)#:]+)(?:#[^)]*)?\)", plain, markdown)
