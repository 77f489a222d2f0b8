package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestWhatComesAfterTheEndIsNoAnswer(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	half := &closer{Reader: strings.NewReader("half")}
	response, err := heard(ctx, &http.Response{StatusCode: http.StatusOK, Body: half}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if read, err := io.ReadAll(response.Body); !errors.Is(err, context.Canceled) || string(read) != "half" {
		t.Errorf("after the request's end the body ended with %v, after %q", err, read)
	}
	late := &closer{Reader: strings.NewReader("")}
	if _, err := heard(ctx, &http.Response{StatusCode: http.StatusOK, Body: late}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a response after the request's end: %v", err)
	}
	if !late.closed {
		t.Error("its body was left open")
	}
}

func TestWhatComesInTimeIsLeftAlone(t *testing.T) {
	t.Parallel()
	whole := &closer{Reader: iotest.DataErrReader(strings.NewReader("whole"))}
	response, err := heard(t.Context(), &http.Response{StatusCode: http.StatusOK, Body: whole}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := io.ReadAll(response.Body); err != nil || string(read) != "whole" {
		t.Errorf("read %q, %v", read, err)
	}
	if err := response.Body.Close(); err != nil || !whole.closed {
		t.Errorf("not closed: %v", err)
	}
	connection := &closer{}
	response, err = heard(t.Context(), &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: connection}, nil)
	if err != nil || response.Body != io.ReadCloser(connection) {
		t.Errorf("a connection that was handed over came as %T, %v", response.Body, err)
	}
	broken := errors.New("broken")
	if _, err := heard(t.Context(), nil, broken); !errors.Is(err, broken) {
		t.Errorf("a failure came as %v", err)
	}
}
