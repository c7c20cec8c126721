# shellcheck shell=bash disable=SC2154,SC2034
# What the scripts in this folder share: where things are kept, progress and failures, the lock, space, the Docker daemon.
# A script sets `here` to this folder before it reads this file.
set -o errexit -o nounset -o pipefail
shopt -s nullglob

# 1.34 is the last minor whose kubelet starts on cgroup v1 without being asked to. Another's programs, for tests against
# its API server: EMBEREYE_KUBERNETES=1.30.14.
kubernetes=${EMBEREYE_KUBERNETES:-1.34.4} etcd=3.6.8 coredns=1.12.1 kind=0.33.0 helm=3.20.2
prometheus=0.309.1 prometheus_operator=0.85.0 gateway_api=1.3.0
glua=1.1.1 # the Lua that Argo CD has
metallb=0.14.9 # a load balancer
kube_router=2.1.0 # which enforces NetworkPolicies
prometheus_adapter=0.12.0 # Prometheus' numbers as the API server's, for HorizontalPodAutoscalers
keda=2.17.2
go2rtc=1.9.9 mediamtx=1.12.3 # cameras and their servers, which ours are tested against
cosign=2.6.5 # which checks signatures of a release
nats_server=2.11.4 # by which the evidence of several hubs comes
# The stock image of that minor which belongs to that kind.
stock_node=kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d
debian=bookworm # its Python is 3.11, the oldest that the project supports

root=$(cd "$here/../.." && pwd)
if ! mkdir -p "${EMBEREYE_CACHE:-$root/.cache}/cluster/logs" 2>/dev/null || [ ! -w "${EMBEREYE_CACHE:-$root/.cache}/cluster/logs" ]; then
  printf '%s may not be written to by %s: run this as root, or set EMBEREYE_CACHE to a folder of your own.\n' "${EMBEREYE_CACHE:-$root/.cache}" "$(id -un)" >&2
  exit 1
fi
cache=$(realpath "${EMBEREYE_CACHE:-$root/.cache}")
state=$cache/cluster
logs=$state/logs
bin=$cache/kubernetes/v$kubernetes/bin
tool=$(basename "$0")

# --- progress and failures ----------------------------------------------------------------------------------------

doing='' began=0 child='' scratch=''
again='run it again, what was finished is kept' # after an interruption
exec {report}>&2 # also where a step's own output goes to a log

step() { # step TEXT: the line is ended, with the seconds that it took, by the next step or by `stepped`
  stepped
  doing=$1 began=$SECONDS
  printf '%s … ' "$doing" >&"$report"
}

stepped() {
  [ -z "$doing" ] || printf '%d s\n' $((SECONDS - began)) >&"$report"
  doing=''
}

fail() { # fail SENTENCE
  [ -z "$doing" ] || printf 'failed\n' >&"$report"
  doing=''
  printf '%s: %s\n' "$tool" "$1" >&"$report"
  exit 1
}

# start COMMAND…: as `child`, in a process group of its own, so that an interruption of this script alone ends it whole.
start() {
  set -m
  "$@" </dev/null &
  child=$!
  set +m
}

finished() { # the child's status, once it has ended
  local status=0
  wait "$child" || status=$?
  child=''
  return "$status"
}

run() {
  start "$@"
  finished
}

# Another script of this folder, which prints its own steps and its own sentence.
part() {
  stepped
  run env EMBEREYE_PART=1 "$here/$1" "${@:2}" >/dev/null || exit
}

interrupted() {
  trap '' INT TERM
  if [ -n "$child" ]; then
    kill -TERM -- "-$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  [ -z "$doing" ] || printf 'interrupted\n' >&"$report"
  doing=''
  [ -n "${EMBEREYE_PART:-}" ] || printf '%s: interrupted; %s.\n' "$tool" "$again" >&"$report"
  exit 130
}

# release FOLDER: unmounts it and all that is mounted within.
release() {
  awk -v folder="$1" '$2 == folder || index($2, folder "/") == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r mount; do
    umount -l "$mount"
  done
}

# Deletes a folder in which a root file system may have been under construction.
discard() {
  release "$1"
  rm -rf --one-file-system "$1"
}

# Prints the tests that pytest's summary in a log names as failed. Captured log lines begin with ERROR and several spaces.
failed_tests() { # failed_tests LOG
  sed -nE 's/^(FAILED|ERROR) ([^ :]+\.py[^ ]*).*/\2/p' "$1"
}

make_scratch() { [ -n "$scratch" ] || scratch=$(mktemp -d "$state/unfinished.XXXXXX"); }

leave() {
  local status=$?
  if [ "$status" != 0 ] && [ -n "$doing" ]; then # no sentence of ours foresaw it
    printf 'failed\n%s: "%s" failed as the line above says, if there is one, and else as the newest file in %s does; mend that and run it again.\n' "$tool" "$doing" "$logs" >&"$report"
  fi
  [ -z "$scratch" ] || discard "$scratch"
  if declare -F on_leave >/dev/null; then on_leave; fi
}

trap interrupted INT TERM
trap leave EXIT

# --- one run at a time, on a machine that can bear it ----------------------------------------------------------------

# The lock is inherited by whatever is started under it: a step that outlives a killed run keeps the next one waiting.
take_lock() {
  local left
  [ -z "${EMBEREYE_PART:-}" ] || return 0
  exec {lock}>>"$state/lock"
  if ! flock --nonblock "$lock"; then
    step "waiting for process $(cat "$state/lock"), which is at work on the same cache"
    run flock "$lock"
    stepped
  fi
  echo $$ >"$state/lock"
  for left in "$state"/unfinished.*; do discard "$left"; done
}

need_root() {
  [ "$(id -u)" = 0 ] || fail "$1 needs root: run it as root, for example with sudo."
}

need_space() { # need_space GB FOLDER FOR
  local free
  free=$(($(df --output=avail -B1M "$2" | tail -1) / 1024))
  [ "$free" -ge "$1" ] || fail "$3 needs $1 GB in $2, and $free GB are free there: free some, or set EMBEREYE_CACHE to a folder on a larger disk."
}

packages() { # packages PACKAGE…: installs what is missing
  local package missing=()
  for package; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "${missing[*]} are needed, and only Debian's packages can be installed from here: install them, then run this again."
  need_root "installing ${missing[*]}"
  step "Debian packages ${missing[*]}"
  run env DEBIAN_FRONTEND=noninteractive "$here/packages" "${missing[@]}" >"$logs/apt.log" 2>&1 ||
    fail "apt-get could not install ${missing[*]}: $logs/apt.log says why."
  stepped
}

# Whether this machine itself lacks CAP_SYS_RESOURCE (number 24), as a container or a small virtual machine may.
lacks_sys_resource() {
  local held
  held=$(awk '/^CapBnd/ { print $2 }' /proc/self/status)
  ((!(0x$held >> 24 & 1)))
}

# --- what is taken back by `down` ---------------------------------------------------------------------------------

settings=(net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv6.conf.default.forwarding vm.overcommit_memory
  vm.panic_on_oom fs.file-max fs.nr_open kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

# Writes down, once, how the machine was before anything here changed it.
remember_machine() {
  local before=$state/before setting
  [ ! -d "$before" ] || return 0
  rm -rf "$before.new"
  mkdir "$before.new"
  for setting in "${settings[@]}"; do
    sysctl -e "$setting" >>"$before.new/settings" 2>/dev/null || true
  done
  iptables-save >"$before.new/iptables" 2>/dev/null || true
  ip6tables-save >"$before.new/ip6tables" 2>/dev/null || true
  ls /sys/class/net >"$before.new/links"
  [ -d /lib/modules ] || touch "$before.new/no-modules"
  mv "$before.new" "$before"
}

restore_machine() {
  local before=$state/before family setting value
  [ -d "$before" ] || return 0
  if [ "$(id -u)" = 0 ]; then
    for family in iptables ip6tables; do
      command -v "$family-save" >/dev/null || continue
      # Another daemon's rules are its own to take back.
      [ ! -f "$before/ours" ] || forget_rules "$family" "$before/$family"
    done
    if [ -f "$before/ours" ]; then
      grep -qx docker0 "$before/links" || ip link delete docker0 2>/dev/null || true
      find /sys/fs/cgroup/ -mindepth 2 -depth -type d -path '*/docker*' -exec rmdir {} + 2>/dev/null || true
    fi
    while IFS=' =' read -r setting value; do
      [ "$(sysctl -n "$setting")" = "$value" ] || sysctl -q -w "$setting=$value"
    done <"$before/settings"
    [ ! -f "$before/no-modules" ] || rmdir /lib/modules 2>/dev/null || true
  fi
  rm -rf "$before"
}

# forget_rules iptables|ip6tables SAVED-BEFORE: what Docker added goes in one transaction, every other rule stays; then
# the tables that only Docker needed.
forget_rules() {
  local family=$1 before=$2 policy table
  policy=$(awk '/^:FORWARD/ && table == "*filter" { print $2 } /^\*/ { table = $1 }' "$before")
  "$family-save" | awk -v policy="${policy:-ACCEPT}" '
    /^\*/ { table = $0; rules = flush = drop = "" }
    /^:DOCKER/ { chain = substr($1, 2); flush = flush "-F " chain "\n"; drop = drop "-X " chain "\n" }
    /^:FORWARD/ && table == "*filter" && $2 != policy { rules = rules ":FORWARD " policy " [0:0]\n" }
    /^-A/ && /DOCKER|docker0|br-[0-9a-f]+/ { sub(/^-A/, "-D"); rules = rules $0 "\n" }
    /^COMMIT/ && rules flush != "" { printf "%s\n%s%s%sCOMMIT\n", table, rules, flush, drop }
  ' | "$family-restore" --noflush
  command -v nft >/dev/null || return 0
  for table in filter nat; do
    grep -qx "\*$table" "$before" && continue
    "$family-save" -t "$table" | grep -q '^-A\|^:[^ ]* -' && continue
    nft delete table "$([ "$family" = iptables ] && echo ip || echo ip6)" "$table" 2>/dev/null || true
  done
}

# --- the Docker daemon ----------------------------------------------------------------------------------------------

docker_answers() { timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# A process that ended and was not reaped, as may stay behind where process 1 is not an init, is not alive. Its command
# line says nothing: it is empty for a moment in a process that starts another program, too.
alive() { # PID
  local status
  status=$(cat "/proc/$1/stat" 2>/dev/null) && [[ ${status##*) } != [ZX]* ]]
}

runs_as() { alive "$1" && [[ $(cat "/proc/$1/comm" 2>/dev/null) == "$2"* ]]; } # PID NAME; dockerd's file is docker.pid

daemon_pid() { # of the daemon that was started here, if it runs
  local pid
  pid=$(cat "$state/daemon" 2>/dev/null) && tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$state/docker" && echo "$pid"
}

# All containers together get as much CPU as one process of this machine, such as one of those that load the cluster. A cluster
# has machines of its own: it goes first. For a daemon of ours alone, with version 1 or 2 of control groups.
prefer_containers() {
  local groups=/sys/fs/cgroup
  daemon_pid >/dev/null || return 0
  [ ! -w $groups/cpu/docker/cpu.shares ] || echo 8192 >$groups/cpu/docker/cpu.shares
  [ ! -w $groups/docker/cpu.weight ] || echo 800 >$groups/docker/cpu.weight
}

need_docker() {
  local stale
  docker_answers && return
  [ -z "${DOCKER_HOST:-}" ] || fail "Docker at $DOCKER_HOST does not answer: start it, or unset DOCKER_HOST."
  [ ! -e /var/run/docker.sock ] || [ -w /var/run/docker.sock ] || fail "/var/run/docker.sock may not be used by $(id -un): run this as root or as a member of the group docker."
  need_root "starting a Docker daemon"
  command -v dockerd >/dev/null || need_space 1 / "installing Docker"
  packages docker.io iptables iproute2 procps
  docker_answers && return # where systemd runs, the package starts it
  [ ! -d /run/systemd/system ] || fail "Docker is installed and its daemon is not running: start it with 'systemctl start docker' (journalctl -u docker says why it stopped), then run this again."
  stale=$(cat /var/run/docker.pid 2>/dev/null || true)
  [ -z "$stale" ] || ! runs_as "$stale" dockerd || fail "the Docker daemon, process $stale, does not answer: stop it, then run this again."
  start_daemon
}

# With its data in the cache. Docker asks for every capability that the kernel knows when a container is privileged, as
# kind's are; where the machine lacks one, a runtime that leaves it out stands before runc.
start_daemon() {
  local python pid left
  step "starting a Docker daemon"
  for left in docker/containerd/containerd docker; do
    # Docker takes a process that was not reaped, or that has got the number meanwhile, for one that runs.
    left=/var/run/$left.pid
    [ ! -f "$left" ] || runs_as "$(cat "$left")" "$(basename "$left" .pid)" || rm "$left"
  done
  remember_machine
  touch "$state/before/ours"
  if lacks_sys_resource; then
    # Copied, and run by no virtual environment's Python: the daemon may outlive this checkout.
    install "$here/runtime.py" "$state/runtime.py"
    python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))') || fail "Python 3 is needed to start containers on a machine without CAP_SYS_RESOURCE: install python3."
    printf '{"default-runtime": "held", "runtimes": {"held": {"path": "%s", "runtimeArgs": ["-I", "-S", "%s"]}}}\n' \
      "$python" "$state/runtime.py" >"$state/docker.json"
  else
    echo '{}' >"$state/docker.json"
  fi
  # It must outlive this script and must not keep the lock.
  (
    for descriptor in "/proc/$BASHPID/fd/"*; do
      descriptor=${descriptor##*/}
      ((descriptor <= 2)) || exec {descriptor}>&-
    done
    exec setsid dockerd --config-file "$state/docker.json" --data-root "$state/docker"
  ) >"$logs/dockerd.log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$state/daemon"
  for _ in {1..120}; do
    docker_answers && break
    alive "$pid" || fail "the Docker daemon did not start: $logs/dockerd.log says why."
    sleep 0.5
  done
  docker_answers || fail "the Docker daemon does not answer after a minute: $logs/dockerd.log says why."
  [ "$(docker info --format '{{.Driver}}')" = overlay2 ] || {
    stop_daemon
    fail "Docker cannot keep its layers in $state (no overlay2 there): set EMBEREYE_CACHE to a folder on an ext4 or xfs disk."
  }
  stepped
}

stop_daemon() {
  local pid
  pid=$(daemon_pid) || { rm -f "$state/daemon"; return 0; }
  kill -TERM "$pid"
  for _ in {1..120}; do
    alive "$pid" || break
    sleep 0.5
  done
  ! alive "$pid" || fail "the Docker daemon, process $pid, does not stop: $logs/dockerd.log says why."
  rm -f "$state/daemon"
}

# pulled IMAGE: whether the image is there or can be pulled. That nothing can be is remembered for a day, in no-pull.
pulled() {
  local log=$logs/pull.log
  docker image inspect "$1" >/dev/null 2>&1 && return
  [ -z "$(find "$state/no-pull" -mmin -1440 2>/dev/null)" ] || return
  step "pulling ${1%%@*}"
  start docker pull "$1" >"$log" 2>&1
  for _ in {1..40}; do
    kill -0 "$child" 2>/dev/null || break
    grep -q 'Pulling fs layer\|Already exists' "$log" && break
    sleep 0.5
  done
  if kill -0 "$child" 2>/dev/null && ! grep -q 'Pulling fs layer\|Already exists' "$log"; then
    kill "$child" # 20 seconds without an answer
  fi
  if finished 2>/dev/null; then
    stepped
    return
  fi
  printf 'not possible; ' >&"$report"
  stepped
  touch "$state/no-pull"
  return 1
}

# --- root file systems ----

# root_filesystem FOLDER PACKAGE…: a minimal Debian with these packages. Its downloads are kept.
root_filesystem() {
  local folder=$1 reason
  shift
  mkdir -p "$state/debs"
  # In a mount namespace of its own, whatever debootstrap mounts vanishes with it.
  run unshare --mount --pid --fork --kill-child \
    debootstrap --variant=minbase --cache-dir="$state/debs" --include="$(IFS=,; echo "$*")" "$debian" "$folder" \
    >"$logs/debootstrap.log" 2>&1 || {
    reason=$(grep '^E:' "$logs/debootstrap.log" | tail -1)
    fail "debootstrap could not install Debian $debian (${reason:-no reason given}): check that Debian's mirror is reachable; $logs/debootstrap.log has the rest."
  }
  (cd "$folder" && rm -rf usr/share/{doc,info,locale,man,lintian} var/cache/apt/* var/cache/debconf/*-old var/lib/apt/lists/* var/log/*)
}

# --- clusters -------------------------------------------------------------------------------------------------------

clusters() { docker ps --all --filter label=io.x-k8s.kind.cluster --format '{{.Label "io.x-k8s.kind.cluster"}}' | sort -u; }

nodes() { docker ps --all --filter "label=io.x-k8s.kind.cluster=$1" --format '{{.Names}}' | sort; }

made_here() { # a cluster of the same name may be somebody else's
  [ -d "$state/clusters/$1" ] || fail "the cluster $1 was not made with the cache $cache: choose another name, or delete it with 'kind delete cluster --name $1'."
}

delete_cluster() {
  nodes "$1" | xargs -r docker rm --force --volumes >/dev/null
  rm -rf "${state:?}/clusters/$1"
}

# Names the image after all that it is made from.
own_node() {
  local inputs
  inputs=$({ echo "$etcd $coredns $debian" && cat "$here/node-image" "$here"/node/*; } | sha256sum)
  echo "embereye-node:v$kubernetes-${inputs:0:12}"
}
