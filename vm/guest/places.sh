# The places for pools: two DAX file systems and a devdax character device, on two NVDIMMs on two NUMA nodes.
#
#   ext4     /mnt/ext4 on region0 (node 0), the whole module
#   xfs      /mnt/xfs  on region1 (node 1), the first part
#   devdax   /dev/daxN.M on region1, the second part (small: creating a pool zeroes the whole device)
#
# The modules have label areas, so namespaces survive a reboot. prepare_places formats raw modules and mounts existing
# file systems. After a killed guest the mount replays the file system's journal, as after a power cut.

for module in nfit nd_pmem dax_pmem device_dax ext4 xfs; do
  modprobe -d /kernel "$module" || check "module-$module" guest fail - 0 "modprobe $module failed"
done

# namespace_field REGION NAME FIELD: a field of the namespace called NAME, empty if there is none.
namespace_field() {
  ndctl list -N -r "$1" 2>/dev/null | tr -d '\n' | sed 's/}/}\n/g' | grep "\"name\":\"$2\"" |
    sed -n "s/.*\"$3\":\"\([^\"]*\)\".*/\1/p"
}

# ensure_namespace REGION NAME MODE [SIZE]
ensure_namespace() {
  [ -z "$(namespace_field "$1" "$2" dev)" ] || return 0
  ndctl create-namespace -r "$1" -n "$2" -m "$3" -M mem ${4:+-s "$4"} 2>&1 | tr -d '\n '
}

# mount_place NAME BLOCK_DEVICE TYPE MKFS...
mount_place() {
  local name=$1 device=$2 type=$3
  shift 3
  mkdir -p "/mnt/$name"
  [ "$(blkid -o value -s TYPE "$device")" = "$type" ] || "$@" "$device" || return 1
  mount -t "$type" -o dax=always "$device" "/mnt/$name"
}

# Fresh modules have no label index yet. Without one a region is one unnamed namespace.
ensure_labels() {
  ndctl check-labels all >/dev/null 2>&1 && return 0
  ndctl disable-region all && ndctl init-labels -f all && ndctl enable-region all
}

prepare_places() {
  local started=$SECONDS output
  output=$(ensure_labels 2>&1)
  output+=$(ensure_namespace region0 ext4 fsdax)
  output+=$(ensure_namespace region1 xfs fsdax 512M)
  output+=$(ensure_namespace region1 devdax devdax 128M)
  ext4_device=/dev/$(namespace_field region0 ext4 blockdev)
  xfs_device=/dev/$(namespace_field region1 xfs blockdev)
  devdax_path=/dev/$(namespace_field region1 devdax chardev)
  [ -b "$ext4_device" ] && [ -b "$xfs_device" ] && [ -c "$devdax_path" ] || {
    check namespaces guest fail - $((SECONDS - started)) "missing namespace: $output $(ndctl list -RN 2>&1)"
    return 1
  }
  output=$(mount_place ext4 "$ext4_device" ext4 mkfs.ext4 -q -F -b 4096 2>&1 &&
    mount_place xfs "$xfs_device" xfs mkfs.xfs -q -f -m reflink=0 2>&1) || {
    check mounts guest fail - $((SECONDS - started)) "$output"
    return 1
  }
  grep -q ' /mnt/ext4 ext4 .*dax=always' /proc/mounts && grep -q ' /mnt/xfs xfs .*dax=always' /proc/mounts || {
    check mounts guest fail - $((SECONDS - started)) "mounted without dax: $(grep /mnt/ /proc/mounts)"
    return 1
  }
  check places guest pass - $((SECONDS - started)) "$(describe_places)"
}

describe_places() {
  echo "ext4 on $ext4_device node $(cat "/sys/block/${ext4_device#/dev/}/device/numa_node"), xfs on $xfs_device" \
    "node $(cat "/sys/block/${xfs_device#/dev/}/device/numa_node"), devdax at $devdax_path, nodes" \
    "$(cat /sys/devices/system/node/online), persistence domain $(cat /sys/bus/nd/devices/region0/persistence_domain)"
}

release_places() {
  umount /mnt/ext4 /mnt/xfs 2>&1
}
