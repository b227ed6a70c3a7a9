# Runs the lines of standard input in the current folder, as somebody does who has Python, git and pipx and nothing else:
# bash test_blocks.sh PYTHON ADDRESS CHECKOUT ADDRESS CHECKOUT. What is cloned from an address is the folder behind it.
set -e
python=$1 home=$PWD/home
shift
git_settings() {
  local number=0
  while [ $# -gt 0 ]; do
    echo "GIT_CONFIG_KEY_$number=url.$2.insteadOf" "GIT_CONFIG_VALUE_$number=$1"
    number=$((number + 1))
    shift 2
  done
  echo "GIT_CONFIG_COUNT=$number"
}
stack=$4
git -C "$stack" init -q
git -C "$stack" add .
git -C "$stack" -c user.name=n -c user.email=e@example.org commit -qm stack
"$python" -m venv tools
tools/bin/pip install -q pipx
mkdir -p "$home/work"
for name in ${!PYTHON*} ${!VIRTUAL_ENV*} ${!PIPX*} ${!SPLATFIX*}; do unset "$name"; done
export HOME=$home PATH=$home/.local/bin:$PWD/tools/bin:/usr/bin:/bin $(git_settings "$@")
cd "$home/work"
bash -ex
