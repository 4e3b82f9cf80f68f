#!/bin/sh
# Installs the broker of the fleet @NAME@ on this host. Call it again after p2pfl deploy has changed a file here, for
# example after --revoke; it starts the broker again if it runs.
#
#   FOLDER   where its files go             (default: /var/lib/p2pfl-broker)
#   UNITS    where the systemd unit goes    (default: /etc/systemd/system)
set -eu

bundle=$(cd "$(dirname "$0")" && pwd)
folder=${FOLDER:-/var/lib/p2pfl-broker}
units=${UNITS:-/etc/systemd/system}
umask 077

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

for path in "$folder" "$units"; do # the unit and mosquitto.conf can quote no others
    case $path in
        [!/]* | *[!A-Za-z0-9._/+-]*) fail "FOLDER and UNITS are absolute paths of A-Z a-z 0-9 . _ / + - alone, unlike '$path'; choose another" ;;
    esac
done
[ "$(id -u)" = 0 ] || fail "call it as root, because the broker runs as the user mosquitto"
command -v mosquitto >/dev/null || fail "there is no mosquitto; install the package mosquitto, version 2"
id mosquitto >/dev/null 2>&1 || fail "there is no user mosquitto, which the package mosquitto makes; install it"
for file in mosquitto.conf acl broker.pem broker.key ca.pem revoked.pem; do
    [ -f "$bundle/$file" ] || fail "$bundle/$file is missing; copy the folder again"
done
mkdir -p "$folder"
! runuser -u mosquitto -- test -w "$(dirname "$folder")" || fail "the user mosquitto may write in the folder above $folder; choose another FOLDER"
# Root writes here and would follow a link that mosquitto has put here, so mosquitto may write in data/ alone.
install -d -o root -g "$(id -gn mosquitto)" -m 750 "$folder"
[ ! -L "$folder/data" ] || fail "$folder/data is a link; remove it"
mkdir -p "$folder/data"
chown mosquitto: "$folder/data"
chmod 700 "$folder/data"
for file in mosquitto.conf acl broker.pem broker.key ca.pem revoked.pem; do
    rm -rf "$folder/$file.part"
    cat "$bundle/$file" >"$folder/$file.part"
    [ "$file" != mosquitto.conf ] || sed -i -E "s#^(certfile|keyfile|cafile|crlfile|acl_file) .*/#\\1 $folder/#; s#^(persistence_location) .*#\\1 $folder/data/#" "$folder/$file.part"
    chown mosquitto: "$folder/$file.part"
    mv -fT "$folder/$file.part" "$folder/$file"
done
if [ -d "$units" ] && [ -w "$units" ]; then
    sed -e "s|@FOLDER@|$folder|g" -e "s|@MOSQUITTO@|$(command -v mosquitto)|g" "$bundle/p2pfl-broker.service" >"$units/p2pfl-broker.service"
    chmod 644 "$units/p2pfl-broker.service"
    systemctl try-restart p2pfl-broker 2>/dev/null || true
    echo "Start:  systemctl daemon-reload && systemctl enable --now p2pfl-broker"
else
    echo "Start:  runuser -u mosquitto -- mosquitto -c $folder/mosquitto.conf"
fi
