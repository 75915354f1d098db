"""What the site needs besides the generator: pages are written for the repository, where links lead to code as well."""

import os
import re
import shutil

SOURCE = "https://github.com/postrider/postrider/blob/main/"
LINK = re.compile(r"(\[[^\]]*\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.M | re.S)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENDORED = os.path.join(ROOT, ".cache", "site", "assets")

# Pages that have another address now.
MOVED = {"tutorial": "shop"}


def github_slug(text, separator):
    """The anchor that GitHub gives a heading, so that one link works in both places."""
    text = re.sub(r"[^a-z0-9 _-]", "", re.sub(r"<[^>]*>", "", text).strip().lower())
    return text.replace(" ", separator)


def on_page_markdown(markdown, page, config, files, **kwargs):
    """Links that leave docs lead to the repository. The first page has no column beside it, and buttons."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
        markdown = re.sub(r"^\[.*\)( · \[.*\))+$", lambda m: m[0].replace(") · [", "){ .md-button } [") + "{ .md-button }", markdown, flags=re.M)
    folder = os.path.dirname(page.file.abs_src_path)

    def target(match):
        path = os.path.normpath(os.path.join(folder, match[2]))
        docs = config["docs_dir"]
        if path.startswith(docs + os.sep) and not os.path.isdir(path):
            return match[0]
        return match[1] + SOURCE + os.path.relpath(path, ROOT).replace(os.sep, "/") + match[3]

    parts = FENCE.split(markdown)
    return "".join(p if i % 2 else LINK.sub(target, p) for i, p in enumerate(parts))


def on_post_build(config, **kwargs):
    """The drawings need mermaid, which make site fetches once, and readers get from the site itself. Old addresses lead to new ones."""
    for old, new in MOVED.items():
        folder = os.path.join(config["site_dir"], old)
        os.makedirs(folder)
        with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as page:
            page.write(f'<!doctype html><meta charset="utf-8"><title>Moved</title><meta http-equiv="refresh" content="0; url=../{new}/">'
                       f'<a href="../{new}/">This page has moved.</a>\n')
    assets = os.path.join(config["site_dir"], "assets")
    for name in os.listdir(VENDORED):
        shutil.copy(os.path.join(VENDORED, name), assets)
    shutil.copy(os.path.join(ROOT, "site", "extra.css"), assets)
