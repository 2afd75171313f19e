# Keeps the list of what its owner has running, from lines on stdin:
#   group N / forget group N    a process group
#   path P  / forget path P     a file or folder
#   cgroup P / forget cgroup P  the folder of a cgroup
# When stdin ends the owner is gone, whatever the reason: kill what is left, remove what is left.
groups=' '
newline='
'
paths=$newline
cgroups=$newline
while IFS= read -r line; do
    case $line in
    'group '*) groups="$groups${line#group } " ;;
    'path '*) paths="$paths${line#path }$newline" ;;
    'cgroup '*) cgroups="$cgroups${line#cgroup }$newline" ;;
    'forget group '*)
        item=" ${line#forget group } "
        case $groups in *"$item"*) groups="${groups%%"$item"*} ${groups#*"$item"}" ;; esac
        ;;
    'forget path '*)
        item="$newline${line#forget path }$newline"
        case $paths in *"$item"*) paths="${paths%%"$item"*}$newline${paths#*"$item"}" ;; esac
        ;;
    'forget cgroup '*)
        item="$newline${line#forget cgroup }$newline"
        case $cgroups in *"$item"*) cgroups="${cgroups%%"$item"*}$newline${cgroups#*"$item"}" ;; esac
        ;;
    esac
done

# A killed process can still be finishing a system call that creates a file, so one round is not enough. Bounded,
# because a group stays "there" for ever where nobody reaps orphans (a container without an init).
set -f
round=0
while [ "$round" -lt 100 ]; do
    left=
    for group in $groups; do
        kill -s KILL -- "-$group" 2>/dev/null && left=yes
    done
    IFS=$newline
    for path in $paths; do
        rm -rf -- "$path" 2>/dev/null || left=yes
    done
    # The files in these folders can't be removed, and need not be. Refused while a process is still in one.
    for cgroup in $cgroups; do
        [ ! -d "$cgroup" ] || find "$cgroup" -depth -type d -exec rmdir -- {} + 2>/dev/null || left=yes
    done
    unset IFS
    [ -n "$left" ] || exit 0
    round=$((round + 1))
    sleep 0.05
done
