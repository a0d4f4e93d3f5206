# Completes the subcommands and flags of heed's programs by their own --help, and what follows --set by --help-settings.
_heed() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=("${COMP_WORDS[0]}") next
  for next in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $next =~ ^[a-z][a-z_-]*$ ]] || break
    command+=("$next")
  done
  if [[ $before == --set ]]; then
    compopt -o nospace
    mapfile -t COMPREPLY < <(compgen -S = -W "$("${command[@]}" --help-settings 2>/dev/null |
      sed -n 's/^\([a-z][a-z0-9_.]*\) = .*/\1/p')" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("${command[@]}" --help 2>/dev/null |
      sed -n 's/^  \(-h,\)\?\(--[a-z0-9-]*\).*/\2/p')" -- "$word")
  elif [[ $before != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("${command[@]}" --help 2>/dev/null |
      sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z_-]*\) .*/\1/p')" -- "$word")
  fi
}
complete -o default -F _heed heed heed-{classify,converse,embed_text,language_model,match,rate,recommend,summarize,tag,translate}
