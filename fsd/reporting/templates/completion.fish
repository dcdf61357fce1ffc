# Completion of fsd: commands, flags, and the values of flags; files elsewhere.
{% for name, (about, flags) in commands.items() %}
{% set words = name.split() %}
{% if words | length == 1 %}
complete -c fsd -n __fish_use_subcommand -f -a {{ name }} -d '{{ about | replace("'", "\\'") }}'
{% else %}
complete -c fsd -n '__fish_seen_subcommand_from {{ words[0] }}; and not __fish_seen_subcommand_from {{ words[1] }}' -f -a {{ words[1] }}
{% endif %}
{% for flag, values in flags.items() %}
complete -c fsd -n '__fish_seen_subcommand_from {{ words | join("; and __fish_seen_subcommand_from ") }}' -l {{ flag[2:] }}{% if values %} -x -a '{{ values | join(" ") }}'{% endif %}

{% endfor %}
{% endfor %}
