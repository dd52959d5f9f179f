#!/bin/sh
# Build a small kernel for guests from a source tree, for BBR versions that no distribution ships.
#
#   sh tests/collect/guest/build_kernel.sh SOURCE FOLDER
#   python -m bbrscope.collect.guest bookworm --kernel FOLDER -- uname -r
#
# SOURCE is a tree of Linux that holds the BBR in question: the branches v3 and v2alpha
# of github.com/google/bbr, or linux-source-6.1 of Debian 12 with patches of
# github.com/xanmod/linux-patches and one change by hand each:
#   v3  eol/linux-6.1.y-xanmod/net/tcp/{plb,bbr3}; pack struct tcp_plb_state (include/net/tcp.h)
#   v2  eol/linux-6.2.y-xanmod/net/bbr2; export tcp_enter_quickack_mode (net/ipv4/tcp_input.c)
# FOLDER gets boot/vmlinuz-RELEASE and lib/modules/RELEASE.
# Needs: apt-get install build-essential flex bison bc libelf-dev libssl-dev dwarves kmod
set -eu
[ $# = 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
fragment=$(cd "$(dirname "$0")" && pwd)/kernel.config
mkdir -p "$2/boot"
folder=$(cd "$2" && pwd)
# A release of its own: the lab's runs have it in their names.
export LOCALVERSION="-$(basename "$folder")"
cd "$1"
make -s tinyconfig
scripts/kconfig/merge_config.sh -m .config "$fragment" > /dev/null
make -s olddefconfig
grep -E '^CONFIG_TCP_CONG_BBR' .config
make -s -j"$(nproc)" bzImage modules
make -s INSTALL_MOD_PATH="$folder" INSTALL_MOD_STRIP=1 modules_install
cp arch/x86/boot/bzImage "$folder/boot/vmlinuz-$(make -s kernelrelease)"
