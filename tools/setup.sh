# shellcheck shell=bash
# setup.sh - sourced by demo.sh and test.sh: installs the packages of tools/packages.txt that are missing.
# Asks nothing, installs nothing that is there already, and needs no network then. Call: by_setup build test neon

by_say() { printf '\n== %s\n' "$*"; }

by_have() {
    case $1 in
    file:*) [ -e "${1#file:}" ] ;;
    header:*) command -v gcc >/dev/null && echo "#include <${1#header:}>" |
        gcc -E -include stdarg.h -include stddef.h -include setjmp.h -include stdint.h -x c - >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# Packages of the given groups that are missing, one a line.
by_missing() {
    local want package group wanted
    while read -r want package group; do
        case $want in '' | '#'*) continue ;; esac
        for wanted in "$@"; do
            [ "$group" = "$wanted" ] || continue
            by_have "$want" || echo "$package"
        done
    done <"$BY_ROOT/tools/packages.txt"
}

# Runs a command as root: directly, through sudo without a question, or through sudo at a terminal.
by_as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    elif command -v sudo >/dev/null && [ -t 0 ]; then
        sudo "$@"
    else
        return 1
    fi
}

by_apt() {
    by_as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null
}

by_setup() {
    local missing
    missing=$(by_missing "$@" | sort -u | tr '\n' ' ')
    if [ -z "$missing" ]; then
        echo "all packages are there"
        return 0
    fi
    echo "missing packages: $missing"
    if ! command -v apt-get >/dev/null; then
        echo "this is no Debian or Ubuntu; install what these packages bring, then run the script again" >&2
        return 1
    fi
    if ! by_as_root true; then
        echo "neither root nor sudo without a password; run: apt-get install $missing" >&2
        return 1
    fi
    # shellcheck disable=SC2086 # the names are words
    by_apt install -y --no-install-recommends $missing ||
        { echo "trying again with fresh package lists" && by_apt update && by_apt install -y --no-install-recommends $missing; } ||
        { echo "could not install: $missing" >&2 && return 1; }
    missing=$(by_missing "$@" | sort -u | tr '\n' ' ')
    [ -z "$missing" ] || { echo "installed, but still not found: $missing" >&2 && return 1; }
}
