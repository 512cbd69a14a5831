"""`seqwise --print-completion bash|zsh`: a script that completes commands, options and the choices of options.

The options are those of each command's `--help-all`, so that nothing is listed twice. Names of recipes are completed
too. zsh reads the same script.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module

from seqwise.cli.options import find_options
from seqwise.errors import UsageError
from seqwise.recipe_files import list_recipe_names

SHELLS = ("bash", "zsh")
SCRIPT = """{start}_seqwise() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} words=""
  case "$command" in {parents}) if [ "$COMP_CWORD" -gt 2 ]; then command="$command ${{COMP_WORDS[2]}}"; fi ;; esac
  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"
  else
    case "$command $previous" in
{choices}
      *) case "$word" in
        -*) case "$command" in
{options}
        esac ;;
        *) case "$command" in
{subcommands}
        esac ;;
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _seqwise seqwise"""  # -o default: otherwise file names
ZSH_START = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def build_script(arguments: Sequence[str], commands: Iterable[str]) -> str:
    """Returns the completion script of a shell."""
    if list(arguments) not in [[shell] for shell in SHELLS]:
        received = " ".join(arguments) or "nothing"
        fix = "For example: seqwise --print-completion bash > ~/.local/share/bash-completion/completions/seqwise"
        raise UsageError(f"--print-completion: expected bash or zsh; received {received}.", fix=fix)
    from seqwise.cli import lab, vectors

    parents = {"lab": lab.COMMANDS, "vectors": vectors.COMMANDS}
    names = [*commands, *(f"{parent} {name}" for parent, children in parents.items() for name in children)]
    choices, options = [], []
    for name in names:
        known = _find_options(name)
        options.append(f'          "{name}") words="{" ".join(known)}" ;;')
        choices += [f'      "{name} {option}") words="{values}" ;;' for option, values in known.items() if values]
    recipes = list_recipe_names()
    choices.append(f'      "train --recipe") words="{" ".join(recipes)}" ;;')
    arguments_by_command = {**parents, "recipes": recipes}
    return SCRIPT.format(
        start=ZSH_START if arguments[0] == "zsh" else "",
        commands=" ".join(commands),
        parents="|".join(parents),
        subcommands="\n".join(
            f'          {command}) words="{" ".join(words)}" ;;' for command, words in arguments_by_command.items()
        ),
        choices="\n".join(choices),
        options="\n".join(options),
    )


def _find_options(command: str) -> Mapping[str, str]:
    """Returns the options of a command, each with its choices."""
    name, *rest = command.split()
    page = io.StringIO()
    with suppress(SystemExit), redirect_stdout(page):
        import_module(f"seqwise.cli.{name}").main([*rest, "--help-all"])
    options = dict.fromkeys((name for names in find_options(page.getvalue()) for name in names), "")
    choices = re.findall(r"^\W*(--[a-z][\w.-]*) (?:[A-Z]+\|)?\{([^}]*)\}", page.getvalue(), flags=re.MULTILINE)
    return options | {option: words.replace(",", " ") for option, words in choices}
