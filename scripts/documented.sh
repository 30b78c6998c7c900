#!/usr/bin/env bash
# Runs the commands in the documents below, in this order, like a new user in a clean clone. Steps of
# CI and benchmarks take long: for a step, the script only checks that the step exists, and for a
# benchmark, that its file exists. An unknown command fails: add a case to `play` for it.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly documents=(README.md docs/COMMAND.md docs/OPERATIONS.md docs/RECIPES.md docs/PLATFORMS.md)
work=$(mktemp -d)
servers=()
reports=0
trap clean_up EXIT

main() {
    start_nodes
    local document command
    for document in "${documents[@]}"; do
        while IFS= read -r command; do
            printf '%s: %s\n' "$document" "$command"
            play "$command"
        done < <(commands "$document")
    done
}

# Prints the commands of a document: the lines of ```sh blocks, the lines that begin with $ and the
# crontab commands in ```text blocks, and the commands in the text.
commands() {
    awk '
        /^```sh$/ { block = "sh"; next }
        /^```text$/ { block = "text"; next }
        /^```/ { block = block == "" ? "other" : ""; next }
        block == "sh" { sub(/ +#.*/, ""); if ($0 !~ /^ *$/) print }
        block == "text" && /^\$ / { print substr($0, 3) }
        block == "text" && /^[0-9*]+ [0-9*]+ .* quorlock / { print substr($0, index($0, "quorlock ")) }
        block == "" {
            rest = $0
            while (match(rest, /`(make|cargo|quorlock|promtool|REDIS_SERVER=[^ ]+ make) [^`]*`/)) {
                print substr(rest, RSTART + 1, RLENGTH - 2)
                rest = substr(rest, RSTART + RLENGTH)
            }
        }
    ' "$1"
}

play() {
    case $1 in
        "make bench" | "cargo bench --bench "*) exists "$1" ;;
        "make "*) is_step "$1" ;;
        # A part of `make test`.
        "cargo test --all-features --test "*) is_step "make test" ;;
        # `make test` on another server.
        "REDIS_SERVER=path make test") is_step "make test" ;;
        "cargo install --locked --path cli")
            # A debug build, because the tests have already built the command without optimisation.
            cargo install --quiet --locked --path cli --debug --root "$work"
            PATH=$work/bin:$PATH
            ;;
        "cargo tree -e normal") count_packages ;;
        "cargo update -p idna_adapter --precise "*) echo "  skipped: it needs another directory" ;;
        "export QUORLOCK_NODES="*) export QUORLOCK_NODES=${nodes[*]} ;;
        "export QUORLOCK_RESTART_GUARD=observed"*) export QUORLOCK_RESTART_GUARD=observed ;;
        "docker compose up -d") five_services ;;
        "quorlock run nightly -- ./nightly.sh") expect 0 run nightly -- ./nightly.sh ;;
        "quorlock run --every 1d nightly -- ./nightly.sh") expect 0 run --every 1d nightly -- ./nightly.sh ;;
        "quorlock status nightly") while_held nightly expect 1 status nightly ;;
        # Two hosts, one after the other.
        "quorlock run -q "*" report -- ./report.sh")
            local words
            # Several documents show this line, and the job of the previous document has run.
            read -ra words <<<"${1#quorlock }"
            words[${#words[@]} - 3]=report-$((++reports))
            expect 0 "${words[@]}"
            [[ $(<"$work/output") == done ]]
            expect 0 "${words[@]}"
            [[ ! -s $work/output ]]
            ;;
        "quorlock check") expect 0 check ;;
        "quorlock check --fail-on warning; echo"*) expect 1 check --fail-on warning ;;
        "quorlock status backup; echo"*) while_held backup expect 1 status backup ;;
        "quorlock status --permits 3 downloads; echo"*) expect 0 status --permits 3 downloads ;;
        "quorlock release backup --force; echo"*) while_held backup expect 0 release backup --force ;;
        "quorlock --help") expect 0 --help ;;
        "quorlock torture") expect 0 torture --help ;;
        # The nodes here are not containers, so the fault suspends a server process.
        "quorlock torture --for 30s"*)
            expect 0 torture --for 5s --seed 5 --fault "3: kill -STOP ${servers[2]}" --mend "kill -CONT ${servers[2]}"
            ;;
        "quorlock help VERB") for verb in run hold lead status check release torture completions; do expect 0 help "$verb"; done ;;
        "quorlock "*"--json"*) quorlock_json "$1" ;;
        # Five machines with systemd.
        "for node in redis-1 "* | "    ssh "* | "    sleep 65" | "done") echo "  skipped: it needs other machines" ;;
        *)
            echo "  unknown command: add a case to scripts/documented.sh" >&2
            return 1
            ;;
    esac
}

# Checks that a command is a step of CI, with or without arguments.
is_step() {
    grep -Eq "(^|[ \"])$1( |\$)" .ci/run .ci/nightly || { echo "  no step of .ci/run or .ci/nightly" >&2; return 1; }
    echo "  a step of CI"
}

exists() {
    case $1 in
        "make bench") make --dry-run bench >/dev/null ;;
        *) [[ -f benches/${1##* }.rs ]] ;;
    esac
    echo "  exists"
}

# Counts the servers in docker-compose.yml, because README.md promises five. `make compose-test`
# starts the containers.
five_services() {
    local services
    services=$(grep -c '^  n[0-9]:$' docker-compose.yml)
    [[ $services -eq 5 ]] || { echo "  docker-compose.yml has $services servers" >&2; return 1; }
    echo "  $services servers"
}

# Compares the number of packages on Linux with the number in docs/PLATFORMS.md.
count_packages() {
    local documented counted
    documented=$(sed -n 's/^A default build has \([0-9]*\) packages.*/\1/p' docs/PLATFORMS.md)
    counted=$(cargo tree -e normal --prefix none -p quorlock | sed 's/ (\*)$//' | sort -u | grep -vc '^quorlock ')
    [[ $(uname -s) != Linux || $documented == "$counted" ]] || { echo "  PLATFORMS.md has $documented, counted $counted" >&2; return 1; }
    echo "  $counted packages"
}

quorlock_json() {
    local words
    read -ra words <<<"${1#quorlock }"
    # The documented `quorlock status --json` omits the name.
    [[ ${words[*]} != "status --json" ]] || words+=(nightly)
    expect 0 "${words[@]}"
}

# Runs quorlock with these arguments, and checks its exit code.
expect() {
    local wanted=$1 code=0
    shift
    (cd "$work" && quorlock "$@") >"$work/output" 2>&1 || code=$?
    sed -n '1,5s/^/  /p' "$work/output"
    [[ $code -eq $wanted ]] || { echo "  exit code $code, expected $wanted" >&2; return 1; }
}

# Runs a command while another process holds the lock.
while_held() {
    local resource=$1 status=0 try
    shift
    : >"$work/held"
    quorlock hold "$resource" >"$work/held" &
    local holder=$!
    for ((try = 0; try < 200; try++)); do
        [[ ! -s $work/held ]] || break
        sleep 0.1
    done
    "$@" || status=$?
    # The holder may have lost the lock and ended.
    kill "$holder" 2>/dev/null || true
    wait "$holder" || true
    return "$status"
}

start_nodes() {
    local server=${REDIS_SERVER:-redis-server} node
    nodes=()
    printf '#!/bin/sh\necho done\n' | tee "$work/nightly.sh" >"$work/report.sh"
    chmod +x "$work/nightly.sh" "$work/report.sh"
    for node in a b c; do
        mkdir "$work/$node"
        "$server" --port 0 --unixsocket "$work/$node/socket" --dir "$work/$node" --save '' --appendonly no >/dev/null &
        servers+=($!)
        nodes+=("unix://$work/$node/socket")
    done
    for node in a b c; do
        for ((try = 0; try < 200; try++)); do
            [[ ! -S $work/$node/socket ]] || break
            sleep 0.1
        done
    done
}

clean_up() {
    local status=$?
    trap - EXIT
    [[ ${#servers[@]} -eq 0 ]] || kill "${servers[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
    exit "$status"
}

main
