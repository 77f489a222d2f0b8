package link

import (
	"crypto/tls"
	"net"
	"syscall"
)

// prompt is a connection whose bytes are acknowledged as soon as they are read.
// Nodes hold a small message back until the one before it is acknowledged
// (Nagle's algorithm), and systems that expect an answer to go out acknowledge
// 40 ms later: twice that in every call.
type prompt struct {
	net.Conn
	raw syscall.RawConn
}

// prompted makes a connection prompt where the system can.
func prompted(conn net.Conn) net.Conn {
	under := conn
	if secure, ok := conn.(*tls.Conn); ok {
		under = secure.NetConn()
	}
	if socket, ok := under.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			return &prompt{conn, raw}
		}
	}
	return conn
}

// Read says after every read that it waits for nothing: systems forget it.
func (p *prompt) Read(data []byte) (int, error) {
	n, err := p.Conn.Read(data)
	_ = p.raw.Control(acknowledge) // if it does not work, it works as it did
	return n, err
}
