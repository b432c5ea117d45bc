// completion: words for bash, zsh and fish.
#include <stdio.h>

#include <string>

#include "cli/command.h"
#include "cli/exit_code.h"

namespace tessera {
namespace {

constexpr char kVerbs[] =
    "create plan verify get describe watch cancel suspend resume wait generate doctor explain "
    "tokenize completion version";

}  // namespace

int RunCompletion(const std::string& shell) {
  if (shell == "bash") {
    printf(
        "_tessera() {\n"
        "  local words='%s' previous=${COMP_WORDS[COMP_CWORD-1]}\n"
        "  case $previous in\n"
        "    get) words='jobs job workers placement';;\n"
        "    describe|job|watch|cancel|suspend|resume|wait|generate|placement)\n"
        "      words=$(tessera get jobs -o name 2>/dev/null | sed 's|.*/||');;\n"
        "    completion) words='bash zsh fish';;\n"
        "    -o|--output) words='table wide json yaml name';;\n"
        "    -f|--file|--timeline) COMPREPLY=($(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\")); "
        "return;;\n"
        "  esac\n"
        "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
        "}\n"
        "complete -F _tessera tessera\n",
        kVerbs);
    return kCliOk;
  }
  if (shell == "zsh") {
    printf(
        "#compdef tessera\n"
        "_tessera() {\n"
        "  case ${words[CURRENT-1]} in\n"
        "    get) compadd jobs job workers placement;;\n"
        "    describe|job|watch|cancel|suspend|resume|wait|generate|placement)\n"
        "      compadd ${(f)\"$(tessera get jobs -o name 2>/dev/null | sed 's|.*/||')\"};;\n"
        "    completion) compadd bash zsh fish;;\n"
        "    -o|--output) compadd table wide json yaml name;;\n"
        "    -f|--file|--timeline) _files;;\n"
        "    *) compadd %s;;\n"
        "  esac\n"
        "}\n"
        "compdef _tessera tessera\n",
        kVerbs);
    return kCliOk;
  }
  if (shell == "fish") {
    printf(
        "complete -c tessera -f\n"
        "complete -c tessera -n '__fish_use_subcommand' -a '%s'\n"
        "complete -c tessera -n '__fish_seen_subcommand_from get' -a 'jobs job workers placement'\n"
        "complete -c tessera -n '__fish_seen_subcommand_from describe watch cancel suspend resume "
        "wait generate' -a \"(tessera get jobs -o name 2>/dev/null | sed 's|.*/||')\"\n"
        "complete -c tessera -n '__fish_seen_subcommand_from create plan verify' -s f -r -F\n"
        "complete -c tessera -n '__fish_seen_subcommand_from plan' -l timeline -r -F\n",
        kVerbs);
    return kCliOk;
  }
  fprintf(stderr, "error: INVALID_ARGUMENT: completion: \"%s\": must be bash, zsh or fish\n",
          shell.c_str());
  return kCliUsage;
}

}  // namespace tessera
