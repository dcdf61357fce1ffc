#!/usr/bin/env bash
# Start or stop PostgreSQL, and an MLflow server on it: services.sh start|start-postgres|stop FOLDER [PORT]
#
# Everything is kept in FOLDER. PostgreSQL listens on a socket in a folder that only its owner can enter, and so needs
# neither a password nor a port. The MLflow server listens on 127.0.0.1 alone and passes artifacts through.
# PG_BIN names the folder of PostgreSQL's programs, PYTHON the interpreter that has MLflow.
set -euo pipefail
# runuser is there on Debian, which a user's PATH may lack
PATH=$PATH:/usr/sbin:/sbin

fail() {
    echo "services: $*" >&2
    exit 2
}

[[ ${1-} == @(start|start-postgres|stop) && -n ${2-} ]] || fail "arguments must be start, start-postgres or stop, a folder and a port; got '$*'"
mkdir -p "$2" 2>/dev/null && [ -w "$2" ] || fail "the folder must be one that can be written; got $2"
folder=$(cd "$2" && pwd)
port=${3:-5000}
[[ $port =~ ^[1-9][0-9]{0,4}$ && $port -lt 65536 ]] || fail "the port must be between 1 and 65535; got $port"
socket=$folder/socket
url="postgresql:///%s?host=$socket&user=fsd"
python=${PYTHON:-$(cd "$(dirname "$0")/.." && pwd)/.venv/bin/python}
pg_bin=${PG_BIN:-$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)}
as_owner=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses to run as root
    as_owner=(runuser -u postgres --)
fi

postgres() {
    (cd / && "${as_owner[@]}" "$pg_bin/$1" "${@:2}")
}

mlflow_runs() { # the number may be that of another program since
    [ -f "$folder/mlflow.pid" ] && grep -qsz '^mlflow$' "/proc/$(cat "$folder/mlflow.pid")/cmdline"
}

# Whether that process or a child of it listens on the port: any other program may answer there.
mlflow_listens() {
    "$python" - "$(cat "$folder/mlflow.pid")" "$port" <<'END'
import sys, psutil
own, port = psutil.Process(int(sys.argv[1])), int(sys.argv[2])
opened = [c for process in (own, *own.children(recursive=True)) for c in process.net_connections("tcp")]
sys.exit(not any(c.status == "LISTEN" and c.laddr.port == port for c in opened))
END
}

start_postgres() {
    [ -x "$pg_bin/initdb" ] || fail "PostgreSQL must be installed (apt-get install postgresql) or named by PG_BIN; got '$pg_bin'"
    # a socket's address has 107 bytes at most
    [ ${#socket} -le 90 ] || fail "the folder's path must have at most 83 characters; got $folder"
    mkdir -p "$folder/postgres" "$socket"
    chmod 700 "$folder/postgres" "$socket"
    if [ "$(id -u)" = 0 ]; then
        chown postgres: "$folder/postgres" "$socket"
        "${as_owner[@]}" test -w "$socket" || fail "the folder must be in reach of the user postgres; got $folder"
    fi
    [ -f "$folder/postgres/PG_VERSION" ] || postgres initdb -D "$folder/postgres" -U fsd -A trust -E UTF8 --no-locale >/dev/null
    postgres pg_ctl status -D "$folder/postgres" >/dev/null ||
        postgres pg_ctl start -s -w -D "$folder/postgres" -l "$folder/postgres/log" \
            -o "-c listen_addresses='' -c unix_socket_directories='$socket' -c unix_socket_permissions=0700" ||
        fail "PostgreSQL must start; see $folder/postgres/log"
    for name in mlflow tuning; do
        postgres psql -h "$socket" -U fsd -Atc "select 1 from pg_database where datname = '$name'" postgres | grep -q 1 ||
            postgres createdb -h "$socket" -U fsd "$name"
    done
}

start_mlflow() {
    "$python" -c "import mlflow, psycopg" 2>/dev/null ||
        fail "MLflow and psycopg must be installed (pip install 'fsd[postgres]') for $python"
    umask 077
    # shellcheck disable=SC2059  # the format is ours
    MLFLOW_BACKEND_STORE_URI=$(printf "$url" mlflow) nohup "$python" -m mlflow server --serve-artifacts \
        --artifacts-destination "$folder/artifacts" --host 127.0.0.1 --port "$port" --workers 2 \
        >"$folder/mlflow.log" 2>&1 </dev/null &
    echo $! >"$folder/mlflow.pid"
    for _ in $(seq 480); do
        sleep 0.5
        mlflow_runs || fail "the MLflow server must start; see $folder/mlflow.log"
        curl -fs -o /dev/null "http://127.0.0.1:$port/health" && mlflow_listens && return
    done
    fail "the MLflow server must answer within four minutes; see $folder/mlflow.log"
}

if [ "$1" = stop ]; then
    if mlflow_runs; then
        kill "$(cat "$folder/mlflow.pid")"
        while mlflow_runs; do sleep 0.1; done
    fi
    rm -f "$folder/mlflow.pid"
    if [ -f "$folder/postgres/postmaster.pid" ]; then
        postgres pg_ctl stop -s -w -m fast -D "$folder/postgres"
    fi
elif [ "$1" = start-postgres ]; then
    start_postgres
else
    if mlflow_runs; then
        mlflow_listens || fail "the port must be that of the MLflow server that runs, or stop it first; got $port"
    elif (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        fail "the port must be free; another program uses $port: name another one (make services PORT=5001)"
    fi
    start_postgres
    mlflow_runs || start_mlflow
    # shellcheck disable=SC2059
    printf "export MLFLOW_TRACKING_URI=http://127.0.0.1:$port\nexport FSD_STORAGE='$url'\n" tuning
fi
