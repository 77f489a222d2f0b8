package devgateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"
)

// TestFront_AnswersHalfARequest: the server behind the front answers half a
// request, and its answer arrives before the other half is sent.
func TestFront_AnswersHalfARequest(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		both := http.NewResponseController(w)
		if err := both.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		if _, err := io.CopyN(w, r.Body, 4); err != nil || both.Flush() != nil {
			t.Errorf("the first half: %v", err)
		}
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Errorf("the second half: %v", err)
		}
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := &http.Transport{}
	defer behind.CloseIdleConnections()
	front := httptest.NewServer(Front(&httputil.ReverseProxy{Transport: behind, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}))
	defer front.Close()

	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: front\r\nContent-Length: 8\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	first := make([]byte, 4)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "half" {
		t.Fatalf("%q %v", first, err)
	}
	if _, err := fmt.Fprint(conn, "more"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "more" {
		t.Errorf("%q %v", rest, err)
	}
}
