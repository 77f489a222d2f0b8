package egress

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// quiet reports whether an idle connection can be used: its server has neither closed it nor sent
// what was not asked for.
func (c *directConn) quiet() bool {
	socket, ok := c.plain.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var seen error
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, seen = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	if err != nil || !errors.Is(seen, syscall.EAGAIN) && !errors.Is(seen, syscall.EWOULDBLOCK) {
		return false
	}
	if c.Conn == c.plain {
		return true
	}
	// What TLS has read already is not in the socket. With a deadline that has passed it reads no more.
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return false
	}
	_, err = c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}
