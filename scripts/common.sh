# What the scripts here share. Sourced from the project's root.

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$(basename "$0"): $*"
  exit 1
}

# pip_install PYTHON LOG ARGUMENTS...: on a terminal pip draws its own progress, elsewhere a line per download is enough.
pip_install() {
  local python=$1 log=$2 status=0
  shift 2
  if [[ -t 2 ]]; then
    "$python" -m pip install --disable-pip-version-check "$@" 2>"$log" >&2 || status=$?
  else
    "$python" -m pip install --disable-pip-version-check "$@" 2>"$log" |
      tee -a "$log" | sed -nu -E 's/^ +(Using cached|Downloading) ([^ ]*\/)?([^ /]+)-py[^ ]*\.whl.*(\(.*\))/  \3 \4/p; s/^Installing.*/  unpacking/p' >&2 ||
      status=$?
  fi
  return $status
}

check_preset() {
  case $1 in
    release | debug | asan | tsan) ;;
    *) say "$(basename "$0"): no preset '$1': use release, debug, asan or tsan"; exit 2 ;;
  esac
}

build_folder() { if [[ $1 == release ]]; then echo build; else echo "build-$1"; fi; }

# dev_tool NAME: the path of a developer's tool of the pinned version.
dev_tool() {
  [[ -x .dev/bin/$1 ]] || scripts/setup --dev
  echo ".dev/bin/$1"
}
