# Completion of fsd: commands, flags, and the values of flags; files elsewhere.
{% if zsh %}
autoload -U +X bashcompinit && bashcompinit
{% endif %}
_fsd() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} second="${COMP_WORDS[1]} ${COMP_WORDS[2]}" words=""
  case "$second" in
{% for name, (about, flags) in commands.items() if " " in name %}
    "{{ name }}") command="{{ name }}" ;;
{% endfor %}
  esac
  case "$command" in
{% for name, (about, flags) in commands.items() if flags or " " not in name %}
    "{{ name }}") words="{{ flags | join(" ") }}{% for other in commands if other.startswith(name + " ") %} {{ other.split()[1] }}{% endfor %}"
{% for flag, values in flags.items() if values %}
      [ "$previous" = "{{ flag }}" ] && words="{{ values | join(" ") }}"
{% endfor %}
      ;;
{% endfor %}
  esac
  if [ "$COMP_CWORD" = 1 ]; then
    words="{% for name in commands if " " not in name %}{{ name }} {% endfor %}--help --version"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _fsd fsd
