#!/usr/bin/env bash
# Runs `quorlock torture` on the five nodes of docker-compose.yml, under a separate project name,
# ports and network. The torture run pauses, kills, shuts down and disconnects the nodes. The exit
# code is the verdict of the torture run. Removes the nodes, even after a failure or Ctrl-C. Skips the
# test without a Docker engine. Arguments are passed to `quorlock torture`: --for 5m, --seed 7.
#
# If the image is not present and cannot be pulled, the script creates a small image from this
# machine's redis-server, and removes it afterwards. NODES_IMAGE names another image, which must be
# present or available. A pulled image is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly project=quorlock-test-$$
readonly label=com.docker.compose.project=$project
readonly own_image=$project
# Maximum number of attempts to find free ports and a free network.
readonly tries=10
compose=()
torture=
work=
root=

main() {
    find_engine
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM

    # Built first, so that a failure leaves no containers.
    cargo build --quiet -p quorlock-cli
    choose_image
    start_nodes
    wait_for_nodes
    work=$(mktemp -d)
    local also=() faults=() node
    urls 127.0.0.1 "$NODES_PORTS" >"$work/nodes"
    # Half of the clients connect directly if this machine is on the nodes' network, as on Linux.
    # Packets to a disconnected node are then lost, and connections are not refused.
    if timeout 2 bash -c "</dev/tcp/$NODES_NET.11/6379" 2>/dev/null; then
        urls "$NODES_NET" >"$work/direct"
        also=(--also-nodes-file "$work/direct")
    fi
    for node in 1 2 3 4 5; do
        faults_of "$node"
    done
    # In the background, because bash handles signals only after a foreground command has ended. The
    # node timeout is long, because a machine with five containers and the clients is slow.
    QUORLOCK_NODE_TIMEOUT=100ms "${CARGO_TARGET_DIR:-target}/debug/quorlock" torture --nodes-file "$work/nodes" \
        "${also[@]}" "${faults[@]}" --for 75s --out "${CARGO_TARGET_DIR:-target}/torture" "$@" &
    torture=$!
    local verdict=0
    wait "$torture" || verdict=$?
    torture=
    return "$verdict"
}

# Prints one URL per node: with the ports of one host, or with one address per node.
urls() {
    local node
    for node in 1 2 3 4 5; do
        if [[ $# -eq 2 ]]; then echo "redis://$1:$2$node"; else echo "redis://$1.1$node"; fi
    done
}

# Adds the faults of a node. Each mend command returns when the node replies again.
faults_of() {
    local container
    container=$(docker ps --quiet --filter "label=$label" --filter "label=com.docker.compose.service=n$1")
    local network=${project}_nodes up="until docker exec $container redis-cli ping; do sleep 0.1; done"
    faults+=(
        --fault "$1: docker pause $container" --mend "docker unpause $container"
        --fault "$1: docker kill $container" --mend "docker start $container; $up"
        --fault "$1: docker stop -t 2 $container" --mend "docker start $container; $up"
        --fault "$1: docker network disconnect $network $container"
        --mend "docker network connect --ip $NODES_NET.1$1 $network $container; $up"
    )
}

say() {
    printf 'compose-test: %s\n' "$*"
}

fail() {
    say "$@" >&2
    exit 1
}

find_engine() {
    docker info >/dev/null 2>&1 || { echo "skipped: no Docker engine"; exit 0; }
    if docker compose version >/dev/null 2>&1; then
        compose=(docker compose)
    elif docker-compose version >/dev/null 2>&1; then
        compose=(docker-compose)
    else
        echo "skipped: neither docker compose nor docker-compose is installed"
        exit 0
    fi
    compose+=(--project-name "$project" --file docker-compose.yml)
}

choose_image() {
    local image=${NODES_IMAGE:-redis:7}
    if ! docker image inspect "$image" >/dev/null 2>&1 && ! docker pull --quiet "$image" 2>/dev/null; then
        [[ -z ${NODES_IMAGE:-} ]] || fail "the image $image is neither present nor can be pulled"
        say "$image cannot be pulled: making an image of this machine's redis-server"
        make_image
        image=$own_image
    fi
    export NODES_IMAGE=$image
}

# Creates an image of redis-server and redis-cli, under their names in docker-compose.yml, and of
# their shared libraries.
make_image() {
    local server cli library
    server=$(command -v "${REDIS_SERVER:-redis-server}") || fail "no redis-server for an image"
    cli=$(command -v redis-cli || command -v valkey-cli || true)
    [[ $(uname -s) == Linux ]] || fail "the redis-server of this machine cannot run in a container"
    root=$(mktemp -d)
    mkdir -p "$root/usr/local/bin"
    cp -L "$server" "$root/usr/local/bin/redis-server"
    # Only the health check uses redis-cli.
    [[ -z $cli ]] || cp -L "$cli" "$root/usr/local/bin/redis-cli"
    # A static program has no libraries.
    for library in $({ ldd "$server"; [[ -z $cli ]] || ldd "$cli"; } | grep -o '/[^ ]*' | sort -u || true); do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
    tar -C "$root" -c . | docker import - "$own_image" >/dev/null
    rm -rf "$root"
    root=
}

# Only Docker can detect whether a port or a network is available, so the script tries random ones.
start_nodes() {
    local try output
    for ((try = 1; try <= tries; try++)); do
        # Below the ports that Linux and macOS assign automatically.
        export NODES_PORTS=$((2000 + RANDOM % 1200))
        export NODES_NET=10.$((200 + RANDOM % 55)).$((RANDOM % 255))
        if output=$("${compose[@]}" up --detach 2>&1); then
            say "five nodes of the image $NODES_IMAGE, ports ${NODES_PORTS}1 to ${NODES_PORTS}5," \
                "network $NODES_NET.0/24"
            return
        fi
        "${compose[@]}" down --volumes --timeout 0 >/dev/null 2>&1 || true
    done
    printf '%s\n' "$output" >&2
    fail "the nodes do not start, after $tries tries"
}

# A published port accepts connections before the server in its container does, and then closes them.
wait_for_nodes() {
    local node try
    for node in 1 2 3 4 5; do
        for ((try = 1; try <= 300; try++)); do
            if replies "$NODES_PORTS$node"; then continue 2; fi
            sleep 0.1
        done
        fail "node $node does not reply"
    done
}

# Returns success if the server on the port $1 of this machine replies to PING.
replies() {
    local reply
    reply=$(timeout 1 bash -c "exec 3<>/dev/tcp/127.0.0.1/$1; printf 'PING\r\n' >&3; head -c 5 <&3" 2>/dev/null) || true
    [[ $reply == +PONG ]]
}

clean_up() {
    local status=$? left
    trap '' HUP INT TERM
    trap - EXIT
    if [[ -n $torture ]]; then
        kill "$torture" 2>/dev/null || true
        wait "$torture" 2>/dev/null || true
    fi
    rm -rf "${root:-}" "${work:-}"
    "${compose[@]}" down --volumes --timeout 0 >/dev/null 2>&1 || true
    # Paused or partly created containers may remain.
    remove "$(docker ps --all --quiet --filter "label=$label")" rm --force --volumes
    remove "$(docker network ls --quiet --filter "label=$label")" network rm
    remove "$(docker image ls --quiet "$own_image")" image rm --force
    left=$(
        docker ps --all --quiet --filter "label=$label"
        docker network ls --quiet --filter "label=$label"
        docker image ls --quiet "$own_image"
    )
    if [[ -n $left ]]; then
        say "not removed:" "$left" >&2
        status=1
    fi
    exit "$status"
}

remove() {
    local ids=$1
    shift
    # shellcheck disable=SC2086  # ids have no spaces
    [[ -z $ids ]] || docker "$@" $ids >/dev/null 2>&1 || true
}

main "$@"
