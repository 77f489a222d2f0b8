package link

import "syscall"

func acknowledge(socket uintptr) {
	_ = syscall.SetsockoptInt(int(socket), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
}
