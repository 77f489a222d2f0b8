package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
)

// abuse are the calls that must be refused, each in exactly one way.
func (r *rig) abuse() map[string]turn {
	return map[string]turn{
		"refused":   r.refused,
		"malformed": r.malformed,
		"replayed":  r.replayed,
		"garbage":   r.garbage,
	}
}

// all sends letters one after the other.
func (r *rig) all(ctx context.Context, letters ...letter) error {
	for _, l := range letters {
		if _, err := r.send(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) refused(ctx context.Context, n int) error {
	body := a2aBody(n, word())
	return r.all(ctx,
		letter{path: "/agents/nobody/a2a", body: body, status: http.StatusNotFound, says: []string{"-32602"}},
		letter{path: "/aepb/translate?from=a2a-v1&dest=nobody", body: body, wid: uuid.NewString(), status: http.StatusNotFound, says: []string{"unknown_agent"}},
		letter{path: "/aepb/translate?from=a2a-v1&dest=tool", body: body, status: http.StatusForbidden, says: []string{"ect_required"}},
		letter{path: "/aepb/translate?from=a2a-v1&dest=tool", body: body, via: r.nobody, status: http.StatusUnauthorized, says: []string{"unauthenticated"}},
		letter{path: "/aepb/translate?from=a2a-v9&dest=tool", body: body, status: http.StatusNotFound, says: []string{"no_translation_path"}},
		letter{method: http.MethodGet, path: "/ects/" + uuid.NewString(), status: http.StatusNotFound, says: []string{"not_found"}},
		letter{method: http.MethodGet, path: "/workflows/" + uuid.NewString(), status: http.StatusNotFound, says: []string{"not_found"}},
		letter{method: http.MethodGet, path: "/nonesuch/" + uuid.NewString(), status: http.StatusNotFound, says: []string{"not_found"}},
		letter{method: http.MethodDelete, path: "/agents/talker/mcp", status: http.StatusMethodNotAllowed},
		letter{path: "/agents/tool/a2a", body: strings.Replace(body, "SendMessage", "DoEverything", 1), says: []string{"-32601"}},
		letter{path: "/agents/tool/a2a", body: strings.Replace(body, `"echo"`, `"`+uuid.NewString()+`"`, 1), says: []string{"-32602"}},
	)
}

func (r *rig) malformed(ctx context.Context, n int) error {
	good, at := a2aBody(n, word()), "/agents/tool/a2a"
	return r.all(ctx,
		letter{path: at, body: good[:len(good)-2], says: []string{"-32700"}},
		letter{path: at, body: strings.Replace(good, `"id"`, `"id":"2","id"`, 1), says: []string{"-32700"}},
		letter{path: at, body: strings.Repeat("[", 4096), says: []string{"-32"}},
		letter{path: at, body: strings.Replace(good, "hello", strings.Repeat("\xff", 8192), 1), says: []string{"-32700"}},
		letter{path: at, body: good, header: map[string]string{"Content-Type": "text/plain"}, status: http.StatusUnsupportedMediaType},
		letter{path: at, body: good, tokens: []string{"a.b"}, status: http.StatusBadRequest, says: []string{"-31403"}},
		letter{path: at, body: good, tokens: []string{strings.Repeat("x", 12<<10), strings.Repeat("y", 12<<10)}, status: http.StatusRequestHeaderFieldsTooLarge},
		letter{path: "/agents/talker/mcp", body: mcpBody("x"), status: http.StatusBadRequest, says: []string{"-32020"}},
		letter{path: "/agents/talker/mcp", body: "[" + mcpBody("x") + "]", header: mcpHeader(), status: http.StatusBadRequest, says: []string{"-32600"}},
		letter{path: "/aepb/translate?from=a2a-v1&dest=tool", body: "{}", wid: uuid.NewString(), status: http.StatusBadRequest, says: []string{"malformed_message"}},
	)
}

// replayed: the same token with the same body gets the same answer, with another
// body a refusal, and so does a token of another body.
func (r *rig) replayed(ctx context.Context, n int) error {
	said := word()
	body, path := a2aBody(n, said), "/aepb/translate?from=a2a-v1&dest=tool"
	token, err := r.minter.Mint(body, uuid.NewString(), r.lifetime)
	if err != nil {
		return err
	}
	mine := []string{token}
	return r.all(ctx,
		letter{path: path, body: body, tokens: mine, says: []string{said}},
		letter{path: path, body: body, tokens: mine, says: []string{said}},
		letter{path: path, body: a2aBody(n, said), tokens: mine, status: http.StatusForbidden, says: []string{"ect_invalid"}},
		letter{path: path, body: body, tokens: []string{strings.Replace(token, ".", ".e30", 1)}, status: http.StatusBadRequest, says: []string{"ect_invalid"}},
	)
}

// garbage are connections that never become requests: bytes that are no TLS, a
// handshake with nothing behind, and half a request.
func (r *rig) garbage(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	address := strings.TrimPrefix(r.gateway.Public, "https://")
	secure := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{RootCAs: r.gateway.Roots(), MinVersion: tls.VersionTLS13}}
	plain, err := secure.NetDialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	_, err = io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("\x00", 512))
	if err = errors.Join(err, plain.Close()); err != nil {
		return err
	}
	for _, text := range []string{"", "POST /agents/tool/a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999\r\n\r\n{"} {
		conn, err := secure.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		_, err = io.WriteString(conn, text)
		if err = errors.Join(err, conn.SetDeadline(time.Now().Add(time.Second)), conn.Close()); err != nil {
			return err
		}
	}
	return nil
}
