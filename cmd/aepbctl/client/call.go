package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
)

const (
	maxReply    = 32 << 20 // bytes that are read of any answer
	sendTimeout = 5 * time.Minute
)

// Answer is an HTTP response, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Call sends one request and reads a bounded answer.
func (c *Client) Call(ctx context.Context, method, url string, header http.Header, body []byte) (Answer, error) {
	client, err := c.HTTP()
	if err != nil {
		return Answer{}, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if header != nil {
		request.Header = header
	}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, unanswered(c, request.URL.Host, err)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	return Answer{response.StatusCode, response.Header, data}, errors.Join(err, response.Body.Close())
}

// Token is what a development gateway left for its operator, if there is one. It
// is not shown to a gateway that was named together with a certificate: that one
// knows us by the certificate, and the token of --dir is another's.
func (c *Client) Token() (string, error) {
	if c.Cert != "" && c.Admin != "" {
		return "", nil
	}
	data, err := os.ReadFile(filepath.Join(c.Dir, "admin-token"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// Operate calls the admin API, which answers with the status want or refuses. A nil body is not sent.
func (c *Client) Operate(ctx context.Context, method, path string, body any, want int) (got Answer, err error) {
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return got, err
		}
	}
	if got, err = c.Administer(ctx, method, path, data); err == nil && got.Status != want {
		err = got.Refusal()
	}
	return got, err
}

// Ask is Operate for what answers with a value.
func (c *Client) Ask(ctx context.Context, method, path string, body any, want int, into any) error {
	got, err := c.Operate(ctx, method, path, body, want)
	if err != nil {
		return err
	}
	return json.Unmarshal(got.Body, into)
}

// Administer sends a request to the admin API, whatever the answer.
func (c *Client) Administer(ctx context.Context, method, path string, body []byte) (Answer, error) {
	return c.AdministerAs(ctx, method, path, "application/json", body)
}

// AdministerAs sends a request whose body has a media type to the admin API, whatever the answer.
func (c *Client) AdministerAs(ctx context.Context, method, path, media string, body []byte) (Answer, error) {
	base, err := c.AdminURL()
	if err != nil {
		return Answer{}, err
	}
	token, err := c.Token()
	if err != nil {
		return Answer{}, err
	}
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		header.Set("Content-Type", media)
	}
	return c.Call(ctx, method, base+"/api"+path, header, body)
}

// Public calls the public listener, which answers with the status want or refuses. A nil body is not sent.
func (c *Client) Public(ctx context.Context, method, path string, body []byte, want int) ([]byte, error) {
	base, err := c.PublicURL()
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	got, err := c.Call(ctx, method, base+path, header, body)
	if err == nil && got.Status != want {
		err = got.Refusal()
	}
	return got.Body, err
}

// Stream reads events from the public listener, for as long as they come.
func (c *Client) Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	base, err := c.PublicURL()
	if err != nil {
		return nil, err
	}
	client, err := c.HTTP()
	if err != nil {
		return nil, err
	}
	client.Timeout = 0
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := client.Do(request)
	if err != nil {
		return nil, unanswered(c, request.URL.Host, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	return nil, errors.Join(err, response.Body.Close(), Answer{response.StatusCode, response.Header, data}.Refusal())
}

// Fetch reads a value from the admin API.
func (c *Client) Fetch(cmd *cobra.Command, path string, into any) error {
	return c.Ask(cmd.Context(), http.MethodGet, path, nil, http.StatusOK, into)
}

// FetchOf is Fetch about one agent.
func (c *Client) FetchOf(cmd *cobra.Command, name, path string, into any) error {
	stop := terminal.Progress(cmd, "asking "+name)
	got, err := c.Operate(cmd.Context(), http.MethodGet, path, nil, http.StatusOK)
	stop()
	if err != nil {
		return c.Named(cmd.Context(), name, got, err)
	}
	return json.Unmarshal(got.Body, into)
}

// Named is an error about the agent of that name.
func (c *Client) Named(ctx context.Context, name string, got Answer, err error) error {
	if err != nil && got.Status == http.StatusNotFound {
		return c.Explain(ctx, got, name)
	}
	return err
}

// Show prints a value as the user asked for it.
func (c *Client) Show(cmd *cobra.Command, value any, text func(io.Writer) error) error {
	if c.Output == "json" {
		to := cmd.OutOrStdout()
		if terminal.Is(to) { // which obeys some characters that JSON lets stand as they are
			to = terminal.Printable{To: to}
		}
		encoder := json.NewEncoder(to)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	return text(cmd.OutOrStdout())
}

// ShowList fetches a list of the admin API and prints it, whose one member has the name of its path.
func ShowList[T any](c *Client, cmd *cobra.Command, name string, table func(io.Writer, []T) error) error {
	var all map[string][]T
	if err := c.Fetch(cmd, "/"+name, &all); err != nil {
		return err
	}
	return c.Show(cmd, all, func(w io.Writer) error { return table(w, all[name]) })
}
