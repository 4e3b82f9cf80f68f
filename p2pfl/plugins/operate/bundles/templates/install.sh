#!/bin/sh
# Installs peer @PEER@ of @NAME@ on this device. Call it twice: the first time it makes the keys of this device and
# writes request.toml for the operator; the second time, with roster.toml and certificate.pem from the operator beside
# it, it completes the installation. A call changes nothing that is done already.
#
#   PREFIX   the Python environment       (default: /opt/p2pfl; without root ~/.local/share/p2pfl)
#   STATE    keys, experiment and runs    (default: /var/lib/p2pfl/@NAME@-@PEER@; without root
#            ~/.local/state/p2pfl/@NAME@-@PEER@; root's unit sees none below /home, /root or /tmp)
#   UNITS    where the systemd unit goes  (default: /etc/systemd/system; without root ~/.config/systemd/user)
#   PYTHON   the Python to use, @PYTHONS@  (default: python3)
#   WHEELS   a folder with all packages, for a device without internet  (default: wheels/ beside this script, which
#            p2pfl deploy --wheels fills); hashes are checked all the same
#   ONLY=packages     install the packages, and make no keys: for an image of containers
#   ENVIRONMENT=yes   PREFIX has p2pfl already, for example with a torch of the vendor: install nothing there
set -eu

bundle=$(cd "$(dirname "$0")" && pwd)
# Root makes a user for the peer; anybody else runs the peer as themselves, and has a unit of their own.
root=no
user=$(id -un 2>/dev/null) || user=$(id -u) # who has no name, in a container
if [ "$(id -u)" = 0 ]; then
    root=yes user=p2pfl
    prefix=${PREFIX:-/opt/p2pfl} state=${STATE:-/var/lib/p2pfl/@NAME@-@PEER@} units=${UNITS:-/etc/systemd/system}
else
    home=${HOME:-$(getent passwd "$user" | cut -d: -f6)}
    prefix=${PREFIX:-$home/.local/share/p2pfl} state=${STATE:-$home/.local/state/p2pfl/@NAME@-@PEER@}
    units=${UNITS:-$home/.config/systemd/user}
fi
python=${PYTHON:-python3}
wheels=${WHEELS:-}
[ -n "$wheels" ] || [ ! -d "$bundle/wheels" ] || wheels=$bundle/wheels
umask 022 # other users run what is in $prefix

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

for path in "$prefix" "$state"; do # the unit and the commands below can quote no others
    case $path in
        [!/]* | *[!A-Za-z0-9._/+-]*) fail "PREFIX and STATE are absolute paths of A-Z a-z 0-9 . _ / + - alone, unlike '$path'; choose another" ;;
    esac
done

(cd "$bundle" && sha256sum --check --quiet --strict SHA256SUMS) || fail "a file of the bundle has changed; copy the bundle again"

# All that can be known is checked before anything is made or downloaded.
if [ "${ENVIRONMENT:-no}" != yes ]; then
    [ "$(uname -m)" = "@MACHINE@" ] || fail "this bundle is for @MACHINE@ and this machine is $(uname -m); make one with --machine @PEER@=$(uname -m)"
    [ ! -x "$prefix/bin/python" ] || python=$prefix/bin/python
    "$python" -c 'import sys; low, high = ([int(part) for part in each.split(".")] for each in sys.argv[1:])
sys.exit(not low <= list(sys.version_info[:2]) <= high)' @LOWEST@ @HIGHEST@ ||
        fail "this bundle is for Python @PYTHONS@ and $python is $("$python" --version 2>&1 || echo missing); set PYTHON, and another PREFIX if it has an environment"
    "$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python lacks the module venv; install the package python3-venv"
fi

if [ "$root" = yes ] && [ "${ONLY:-}" != packages ]; then
    if [ -d "$state" ] && [ -n "$(ls -A "$state")" ]; then
        owner=$(stat -c %U "$state")
        [ "$owner" = p2pfl ] || fail "$state has files and belongs to $owner; choose another STATE"
    fi
    id p2pfl >/dev/null 2>&1 || useradd --system --home-dir /var/lib/p2pfl --shell /usr/sbin/nologin p2pfl
fi

# How to call p2pfl in $state, for somebody who may be unable to enter it and becomes the user of the peer by sudo.
there() {
    if [ "$root" = yes ]; then
        echo "sudo -u p2pfl sh -c 'cd $state && exec $prefix/bin/p2pfl $1'"
    else
        echo "cd $state && $prefix/bin/p2pfl $1"
    fi
}

# Everything in $state is written by the user of the peer: root would follow a link that this user has put there.
as_peer() {
    if [ "$root" = yes ] && [ "${ONLY:-}" != packages ]; then
        runuser -u p2pfl -- "$@"
    else
        "$@"
    fi
}

# Copies a file of the bundle, which that user may not be able to read.
put() {
    as_peer sh -c 'umask 077; mkdir -p "$(dirname "$1")"; cat >"$1.part" && mv -f "$1.part" "$1"' sh "$state/$1" <"$bundle/$1"
}

if [ "${ENVIRONMENT:-no}" != yes ]; then
    real=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
    as_peer "$real" -c 1 2>/dev/null || fail "the user $user cannot run $real; install Python where all users can reach it, or set PYTHON"
    [ -x "$prefix/bin/python" ] || "$python" -m venv "$prefix" || fail "no environment can be made in $prefix; set PREFIX to a folder that you may write"
    [ -z "$wheels" ] || "$prefix/bin/python" -P - "$wheels" "$bundle/torch.txt" "$bundle/requirements.txt" <<'END' || exit 1
import platform, re, sys
from pathlib import Path
from pip._vendor.packaging.tags import sys_tags
from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename

ours, fitting = set(sys_tags()), set()
for path in Path(sys.argv[1]).glob("*.whl"):
    name, version, _, tags = parse_wheel_filename(path.name)
    if not ours.isdisjoint(tags):
        fitting.add((name, str(version)))
for file in sys.argv[2:]:
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;]+)", Path(file).read_text("utf-8"), re.MULTILINE):
        if (canonicalize_name(name), version) not in fitting:
            python, libc = ".".join(platform.python_version_tuple()[:2]), " ".join(platform.libc_ver()).strip()
            sys.exit(
                f"install.sh: no wheel of {name} {version} fits Python {python} on {platform.machine()} with "
                f"{libc or 'another C library'} in {sys.argv[1]}; make a bundle with p2pfl deploy --wheels --machine "
                f"@PEER@={platform.machine()}:{python}"
            )
END
    # torch by itself, because its file may name an index, which is for torch alone; it is empty where none is needed.
    for file in torch.txt requirements.txt; do
        [ -s "$bundle/$file" ] || continue
        (cd "$bundle" && PIP_CONSTRAINT=/dev/null "$prefix/bin/python" -m pip install --quiet --no-compile --no-deps --require-hashes ${wheels:+--no-index --find-links "$wheels"} --requirement "$file") ||
            fail "the packages of $file cannot be installed; see the message of pip above, and set WHEELS where no index can be reached"
    done
fi
[ "${ONLY:-}" != packages ] || exit 0
[ -x "$prefix/bin/p2pfl" ] || fail "there is no p2pfl in $prefix; leave ENVIRONMENT out, or install it there"
as_peer test -x "$prefix/bin/p2pfl" || fail "the user $user cannot reach $prefix; choose another PREFIX"

if [ "$root" = yes ]; then
    install -d -m 755 /var/lib/p2pfl
    install -d -o p2pfl -g p2pfl -m 700 "$state"
    as_peer test -w "$state" || fail "the user p2pfl cannot reach $state; choose another STATE"
else
    (umask 077 && mkdir -p "$state")
fi
! as_peer test -e "$state/roster.toml" || as_peer test -e "$state/@FILE@" ||
    fail "$state has another experiment; choose another STATE"
for file in @FILES@; do
    put "$file"
done
# A device has one identity: it takes the keys of another experiment of its fleet, for which its certificate is.
if [ -f "$bundle/certificate.pem" ]; then
    as_peer sh -c 'umask 077
        [ ! -e "$1/keys/@PEER@.pem" ] || exit 0
        for other in "$1"/../*/; do
            if [ -f "$other/keys/@PEER@.key" ] && [ -f "$other/certificate.pem" ] && [ "$(sha256sum <"$other/certificate.pem")" = "$2" ]; then
                mkdir -p "$1/keys" && cp "$other/keys/@PEER@.pem" "$other/keys/@PEER@.key" "$1/keys/"
                exit
            fi
        done' sh "$state" "$(sha256sum <"$bundle/certificate.pem")"
fi
as_peer sh -c 'umask 077; export PYTHONPYCACHEPREFIX="$2/cache"; exec "$1" identity @PEER@ --keys "$2/keys" --request "$2/request.toml"' sh "$prefix/bin/p2pfl" "$state"
as_peer cat "$state/request.toml" >"$bundle/request.toml" || # it holds public keys alone
    fail "$bundle/request.toml cannot be written; copy the bundle to where user $(id -u) may write"

if [ ! -f "$bundle/roster.toml" ] || [ ! -f "$bundle/certificate.pem" ]; then
    echo "Send $bundle/request.toml to the operator, and read them the fingerprint above by telephone."
    echo "Then copy roster.toml and certificate.pem, which they send back, to $bundle, and call install.sh again."
    exit 0
fi

"$prefix/bin/python" -P -B - "$bundle" <<'END' || fail "roster.toml and certificate.pem in $bundle are for another key than this device has; send the operator $bundle/request.toml, or bring the keys back to $state/keys"
import sys
from pathlib import Path
from cryptography import x509
from p2pfl.privacy.keys import Roster
from p2pfl.privacy.keys.key_requests import DeviceRequest

bundle = Path(sys.argv[1])
asked = DeviceRequest.load(bundle / "request.toml")
certificate = x509.load_pem_x509_certificate((bundle / "certificate.pem").read_bytes())
listed = Roster.read(bundle / "roster.toml").peers.get(asked.peer)
sys.exit(listed != asked.public or certificate.public_key() != asked.read.public_key())
END
put roster.toml
put certificate.pem
[ ! -f "$bundle/observers.toml" ] || put observers.toml
echo "Compare this line by telephone with what p2pfl deploy --collect printed for the operator:"
echo "roster.toml  $(as_peer "$prefix/bin/python" -P -B -c 'import sys; from p2pfl.privacy.keys import Roster; print(Roster.read(sys.argv[1]).fingerprint)' "$state/roster.toml")"
# What only root's systemd can do, or knows, is left out of the unit of another user.
own=
if [ "$root" = no ]; then
    own='/^# With root alone/,/^$/d; /^User=/d; /network-online/d; s/multi-user\.target/default.target/'
    mkdir -p "$units" 2>/dev/null || true
fi
if [ -d "$units" ] && [ -w "$units" ]; then
    sed -e "$own" -e "s|@PREFIX@|$prefix|g" -e "s|@STATE@|$state|g" -e "s|@USER@|$user|g" "$bundle/p2pfl-peer.service" >"$units/p2pfl-@NAME@-@PEER@.service"
    chmod 644 "$units/p2pfl-@NAME@-@PEER@.service"
    echo "Check:  $(there "doctor @FILE@ --as @PEER@@TRUST@")"
    if [ "$root" = yes ]; then
        echo "Start:  sudo systemctl daemon-reload && sudo systemctl enable --now p2pfl-@NAME@-@PEER@"
    else
        echo "Start:  loginctl enable-linger && systemctl --user daemon-reload && systemctl --user enable --now p2pfl-@NAME@-@PEER@"
    fi
else
    echo "Check:  $(there "doctor @FILE@ --as @PEER@@TRUST@")"
    echo "Start:  $(there "peer @FILE@ --name @PEER@ --resume")"
fi
