"""Writes the manual page of a program from what it says with --help: manual.py PROGRAM NAME > NAME.1

NAME is what the program is called where it is installed; PROGRAM is the file to ask, and may begin with an emulator.
"""

import re
import subprocess
import sys

program, name = sys.argv[1].split(), sys.argv[2]


def says(*words):
    return subprocess.run([*program, *words], check=True, capture_output=True, text=True).stdout


def roff(text):
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", r"\e").replace("-", r"\-"))


def section(words):
    """The page's part about one subcommand, and the parts of its own subcommands."""
    lines, subcommands = [], []
    heading = ""
    for line in says(*words, "--help").splitlines():
        entry = re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line) or re.fullmatch(r"(\S.*?)  +(\S.*)", line)
        if re.fullmatch(r"\w[\w ]*:", line):
            heading = line[:-1]
            lines.append(f".SS {heading}" if words else f".SH {heading.upper()}")
        elif line.startswith("Usage: "):
            lines += [".P", f".B {roff(' '.join([name, *line.split()[2:]]))}", ".P"]
        elif entry:
            lines += [".TP", f".B {roff(entry[1])}", roff(entry[2] or "")]
            if heading == "Subcommands":
                subcommands.append(entry[1])
        else:
            lines.append(roff(line.strip()) if line else ".P")
    if words:
        lines.insert(0, f".SH {name} {' '.join(words)}".upper())
    return lines + [line for one in subcommands for line in section([*words, one])]


does = says("--help").splitlines()[0].rstrip(".")
page = [f'.TH {name.upper()} 1 "" "{says("--version").strip()}" "User commands"',
        ".SH NAME", rf"{roff(name)} \- {roff(does[0].lower() + does[1:])}", ".SH DESCRIPTION", *section([])]
# No empty lines, and no paragraph where another macro begins one.
text = re.sub(r"(\.P\n)+(?=\.(?:P|SH|SS|TP))|\n+(?=\n)", "", "\n".join(page) + "\n")
print(re.sub(r"(?<=\n)(\.S[HS] .*\n)(?:\.P\n)+", r"\1", text), end="")
