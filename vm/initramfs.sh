#!/bin/bash
# Builds the guests' initramfs: busybox, the modules for 9p over virtio, and an init that uses the host's /usr as the
# guest's /usr. So host-built programs run in the guest, and no disk image is needed.
#
# usage: vm/initramfs.sh KERNEL_FOLDER KERNEL_VERSION OUTPUT
set -euo pipefail
kernel=$1 version=$2 output=$3
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{bin,proc,sys,dev,modules,newroot,etc}
cp "$(command -v busybox)" "$tree/bin/busybox"
for name in sh mount insmod mkdir ln cp cat switch_root poweroff; do ln -s busybox "$tree/bin/$name"; done

# Modules in the order in which they must be loaded, each once.
for module in virtio_pci 9pnet_virtio 9p; do
  modprobe -d "$kernel" -S "$version" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++' | while read -r file; do
  name=$(basename "$file")
  case $name in
    *.xz) name=${name%.xz}; xz -dc "$file" >"$tree/modules/$name" ;;
    *.zst) name=${name%.zst}; zstd -dcq "$file" >"$tree/modules/$name" ;;
    *) cp "$file" "$tree/modules/$name" ;;
  esac
  echo "$name" >>"$tree/modules/order"
done

# The few files of /etc that host-built programs read.
for name in passwd group ld.so.cache ld.so.conf nsswitch.conf alternatives mke2fs.conf libibverbs.d; do
  [ ! -e "/etc/$name" ] || cp -a "/etc/$name" "$tree/etc/"
done

cat >"$tree/init" <<'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
mount -t tmpfs -o size=512m root /newroot
cd /newroot
mkdir -p usr proc sys dev run tmp var/lib var/run mnt share kernel root etc
for name in bin sbin lib lib64 lib32; do ln -s usr/$name $name; done
cp -a /etc/. etc/
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $options,ro,cache=loose usr /newroot/usr
mount -t 9p -o $options,ro,cache=loose kernel /newroot/kernel
# No cache: when write() returns, the guest's data is in the host's file, so it survives a killed guest.
mount -t 9p -o $options,cache=none share /newroot/share
for name in proc sys dev; do mount --move /$name /newroot/$name; done
exec switch_root /newroot /bin/bash /share/init.sh
INIT
chmod +x "$tree/init"
(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$output"
