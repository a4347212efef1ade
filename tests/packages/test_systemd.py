"""The units, started by a real systemd: what it is told, who hangs, its sockets, and what apt does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.packages import systemd
from tests.servers import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

# `ask PORT COMMAND WHAT-COMES`; `is PROPERTY VALUE` of the unit, and `says TEXT` of its journal, wait; `no COMMAND`
# fails where the command does not. Whatever fails, the journal of the unit is shown. (A shell takes line ends from the
# end of what a command says: hence the point.)
WORDS: Final = r"""
trap '[ $? = 0 ] || journalctl -u mq-shards --no-pager -q -n 60' EXIT
ask() { /usr/bin/python3 /given/ask.py "$1" "$(printf "$2\r\n.")" "$3"; }
put() { ask "$1" "put 0 0 60 ${#2}\r\n$2" INSERTED; }
of() { systemctl show -P "$1" mq-shards; }
is() {
    for _ in $(seq 600); do [ "$(of "$1")" != "$2" ] || return 0; sleep 0.1; done
    echo "$1 is $(of "$1"), not $2"
    return 1
}
says() {
    for _ in $(seq 600); do ! journalctl -u mq-shards --no-pager -q | grep -q "$1" || return 0; sleep 0.1; done
    journalctl -u mq-shards --no-pager -n 40
    return 1
}
# Its status is still that of the process before, until the one that is started now has said something.
up() { is ActiveState active; is StatusText serving; }
no() { if "$@"; then echo "done: $*"; exit 1; fi; }
drop_in() {
    mkdir -p /etc/systemd/system/mq-shards.service.d
    printf '[Service]\n%s\n' "$2" >"/etc/systemd/system/mq-shards.service.d/$1.conf"
    systemctl daemon-reload
}
"""
INSTALL: Final = "dpkg -i /given/package.deb >/dev/null\nis StatusText serving\n"


@pytest.fixture(scope="module", autouse=True)
def there_is_one() -> None:
    if not systemd.can_be_had():
        pytest.skip("needs root, systemd, overlayfs and control groups of version 2")


def run(script: str, files: dict[str, Path]) -> None:
    systemd.run(WORDS + script, files)


def test_it_is_started_reloaded_drained_and_stopped(made: dict[str, Path]) -> None:
    script = r"""
[ "$(of User)" = mq-shards ]
put 11300 one
main=$(of MainPID)
printf '[nats]\nmax-payload = 2048\n' >>/etc/mq-shards.toml
systemctl reload mq-shards
says 'reloaded: nats.max-payload = 2048'
kill -9 "$(pgrep -x mq-worker-0)"
says 'mq-worker-0 is back'
is StatusText serving
[ "$(of MainPID)" = "$main" ]
systemctl kill --kill-whom=main --signal=USR1 mq-shards
is StatusText 'serving (draining)'
ask 11300 'put 0 0 60 1\r\nx' DRAINING
systemctl restart mq-shards
ask 11300 peek-ready one
systemctl stop mq-shards
[ "$(of Result) $(of ExecMainStatus) $(of ActiveState)" = 'success 0 inactive' ]
"""
    run(INSTALL + script, made)


def test_one_that_is_killed_or_hangs_is_started_again_and_one_with_a_bad_option_is_not(made: dict[str, Path]) -> None:
    script = r"""
put 11300 one
kill -9 "$(of MainPID)"
is NRestarts 1
up
ask 11300 peek-ready one
# What somebody should look at is found by its priority, and nothing else is.
warned() { journalctl -u mq-shards --no-pager -q -o cat -p warning; }
kill -9 "$(pgrep -x mq-worker-0)"
says 'mq-worker-0 is back'
is StatusText serving
warned | grep 'mq-worker-0.*SIGKILL'
no eval "warned | grep -e 'listening on' -e ' info ' -e '<[0-9]>'"
journalctl -u mq-shards --no-pager -q -o cat | grep -v '^<' | grep -q 'info mq-supervisor: listening on'
# However short it is.
drop_in watch 'WatchdogSec=300ms'
systemctl restart mq-shards
is StatusText serving
sleep 3
[ "$(of NRestarts)" = 0 ]
drop_in watch 'WatchdogSec=20'
systemctl restart mq-shards
kill -STOP "$(of MainPID)"
is NRestarts 1
says 'Watchdog timeout'
up
ask 11300 peek-ready one
cp /etc/mq-shards.toml /tmp/good
sed -i '1i nonsense = 1' /etc/mq-shards.toml
no systemctl restart mq-shards
[ "$(of ExecMainStatus) $(of NRestarts) $(of ActiveState)" = '2 0 failed' ]
says '"nonsense" is not an option'
warned | grep '"nonsense" is not an option'
cp /tmp/good /etc/mq-shards.toml
systemctl start mq-shards
ask 11300 peek-ready one
"""
    run(INSTALL + script, made)


def test_it_serves_every_protocol_within_what_the_unit_allows(made: dict[str, Path]) -> None:
    """A call that the kernel refuses it would be an error in the journal, or a process that dies."""
    script = r"""
export LC_ALL=C.UTF-8
drop_in run 'RuntimeDirectory=mq-shards'
sed -i 's,^listen = \[,&"beanstalk://unix:/run/mq-shards/jobs.sock"\,,' /etc/mq-shards.toml
printf '[broker]\nunix-owner = ":mq-shards"\n' >>/etc/mq-shards.toml
systemctl restart mq-shards
is StatusText serving
grep -x 'Seccomp:.2' "/proc/$(of MainPID)/status"
stat -c '%a %G' /run/mq-shards/jobs.sock | grep -x '660 mq-shards'
for at in nsq://127.0.0.1:4150 nsq-http://127.0.0.1:4151 beanstalk://127.0.0.1:11300 nats://127.0.0.1:4222 \
    pulsar://127.0.0.1:6650 http://127.0.0.1:4180; do
    mq-shards publish all "from $at" --at $at
done
mq-shards peek all -n 9 | grep -c from | grep -x 5  # NATS keeps none
for path in 4180/metrics 4180/v1/overview 8222/varz 8080/admin/v2/clusters 4151/stats; do
    /usr/bin/python3 -c "import urllib.request as u; assert u.urlopen('http://127.0.0.1:$path', timeout=60).read()"
done
for name in worker-0 acceptor-0 gateway; do
    kill -9 "$(pgrep -x mq-$name)"
    says "mq-$name is back"
    is StatusText serving
done
systemctl reload mq-shards
systemctl restart mq-shards
mq-shards consume all -n 1 --at nsq://127.0.0.1:4150 | grep from
systemctl stop mq-shards
[ "$(of Result) $(of ExecMainStatus)" = 'success 0' ]
no eval "journalctl -u mq-shards --no-pager -q -o cat -p warning | grep -v SIGKILL"
"""
    run(INSTALL + script, made)


def test_ports_below_1024_come_from_a_socket_unit_or_with_a_capability(made: dict[str, Path]) -> None:
    script = r"""
put 11300 one
systemctl stop mq-shards
printf '[Socket]\nListenStream=127.0.0.1:113\nFileDescriptorName=jobs\n' >/etc/systemd/system/mq-shards.socket
sed -i 's,beanstalk://127.0.0.1:11300,beanstalk://systemd:jobs,' /etc/mq-shards.toml
systemctl daemon-reload
systemctl start mq-shards.socket
[ "$(of ActiveState)" = inactive ]
ask 113 peek-ready one
is StatusText serving
grep -x 'CapEff:.0000000000000000' "/proc/$(of MainPID)/status"
systemctl stop mq-shards
ask 113 peek-ready one
kill -9 "$(of MainPID)"
ask 113 peek-ready one
is NRestarts 1
systemctl stop mq-shards.socket mq-shards
sed -i 's,beanstalk://systemd:jobs,beanstalk://127.0.0.1:114,' /etc/mq-shards.toml
no systemctl start mq-shards
says 'beanstalk://127.0.0.1:114: Permission denied'
systemctl stop mq-shards
drop_in ports 'AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE'
systemctl start mq-shards
ask 114 peek-ready one
"""
    run(INSTALL + script, made)


def test_the_unit_of_a_virtual_environment_has_a_user_of_its_own(made: dict[str, Path]) -> None:
    script = r"""
dpkg -x /given/package.deb /tmp/package
cp -a /tmp/package/usr/lib/mq-shards /usr/lib/
ln -s /usr/lib/mq-shards /opt/mq-shards
cp /given/mq-shards.service /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now mq-shards
is StatusText serving
put 11300 one
no grep mq-shards /etc/passwd
no test "$(ps -o uid= -p "$(of MainPID)")" -eq 0
systemctl restart mq-shards
ask 11300 peek-ready one
stat -Lc %a /var/lib/mq-shards | grep -x 750
no nsenter -t "$(of MainPID)" -m touch /usr/here
"""
    run(script, {**made, "mq-shards.service": ROOT / "deploy" / "mq-shards.service"})


def test_what_apt_does_leaves_the_administrators_will_and_the_messages(made: dict[str, Path]) -> None:
    """While another server has a port, it is installed nevertheless, and serves as soon as that has gone."""
    script = r"""
/usr/bin/python3 -c 'import socket, time; s = socket.create_server(("127.0.0.1", 4150)); time.sleep(9999)' &
other=$!
until grep -q ':1036 ' /proc/net/tcp; do sleep 0.1; done
dpkg -i /given/package.deb >/dev/null
kill $other
is StatusText serving
put 11300 one
main=$(of MainPID)
dpkg -i /given/package.deb >/dev/null
is StatusText serving
no test "$(of MainPID)" = "$main"
systemctl stop mq-shards
dpkg -i /given/package.deb >/dev/null
is StatusText serving
systemctl disable --now mq-shards
dpkg -i /given/package.deb >/dev/null
is ActiveState inactive
no systemctl is-enabled mq-shards
rm -r /var/lib/systemd/deb-systemd-helper-enabled  # as of a release that kept no note of it
dpkg -i /given/package.deb >/dev/null
is ActiveState inactive
no systemctl is-enabled mq-shards
systemctl enable --now mq-shards
dpkg --remove mq-shards >/dev/null
no pgrep -x mq-supervisor
dpkg -i /given/package.deb >/dev/null
is StatusText serving
ask 11300 peek-ready one
dpkg --purge mq-shards >/dev/null
no pgrep -x mq-supervisor
find /etc -name '*mq-shards*' >/tmp/left
no grep . /tmp/left
dpkg -i /given/package.deb >/dev/null
is StatusText serving
ask 11300 peek-ready one
"""
    run(script, made)


def test_a_unit_may_have_another_name(made: dict[str, Path]) -> None:
    """Of whoever takes another server's place: its jobs are those of before, and so is the way it is told things."""
    script = r"""
put 11300 before
systemctl stop mq-shards && systemctl disable -q mq-shards
cp /lib/systemd/system/mq-shards.service /etc/systemd/system/beanstalkd.service
printf '[Socket]\nListenStream=127.0.0.1:911\nFileDescriptorName=b\nService=beanstalkd.service\n' \
    >/etc/systemd/system/queue.socket
mkdir -p /etc/systemd/system/beanstalkd.service.d
printf '[Service]\nSockets=queue.socket\nExecStart=\nExecStart=%s\n' \
    '/usr/bin/mq-shards --config /etc/mq-shards.toml --listen beanstalk://systemd:b' \
    >/etc/systemd/system/beanstalkd.service.d/socket.conf
systemctl daemon-reload
systemctl start queue.socket beanstalkd
of() { systemctl show -P "$1" beanstalkd; }
is StatusText serving
ask 911 'reserve\r\n' before
systemctl reload beanstalkd
systemctl kill --kill-whom=main --signal=USR1 beanstalkd
for _ in $(seq 100); do ! ask 911 'put 0 0 60 1\r\nx\r\n' DRAINING || break; sleep 0.1; done
ask 911 'put 0 0 60 1\r\nx\r\n' DRAINING
systemctl stop beanstalkd
is Result success
"""
    run(INSTALL + script, made)
