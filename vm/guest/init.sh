#!/bin/bash
# The guest's first process after the initramfs. It builds a small Unix from the host's /usr, runs the job that the host
# has left in /share, and powers the machine off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts

# Modules come from the unpacked kernel, not from the host's /lib.
printf '#!/bin/bash\nexec /usr/sbin/modprobe -d /kernel "$@"\n' >/run/modprobe
chmod +x /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe

. /share/protocol.sh
event booted "$(cut -d ' ' -f 1 /proc/uptime)"
bash /share/job.sh
event finished "$?"
sync
echo o >/proc/sysrq-trigger
sleep 60
