package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Where healthz looks by itself, and how long it waits.
const (
	defaultMonitoring = "http://127.0.0.1:9464"
	healthTimeout     = 5 * time.Second
	maxHealth         = 1 << 10 // bytes of the answer that are read
)

func healthzCommand(t *target) *cobra.Command {
	var live bool
	cmd := &cobra.Command{
		Use:   "healthz [URL]",
		Short: "Ask a gateway whether it is ready, such as in a container's HEALTHCHECK",
		Long: "Ask a gateway at its listen.metrics whether it is ready, or with --live whether it\n" +
			"runs. Exit code 0: it is. 1: it is not, or does not answer; the reason is printed.\n" +
			"URL is that of the listener, by default " + defaultMonitoring + ". For https, that of the\n" +
			"admin listener, --dir or --cert, --key and --ca say who we are and whom we trust.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("expected one URL at most")
			}
			for _, arg := range args {
				if u, err := url.Parse(arg); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
					return fmt.Errorf("%q is no URL of a listener, such as %s", arg, defaultMonitoring)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			base, path := defaultMonitoring, "/readyz"
			if len(args) == 1 {
				base = strings.TrimRight(args[0], "/")
			}
			if live {
				path = "/healthz"
			}
			said, err := t.health(cmd.Context(), base+path)
			if err != nil {
				return err
			}
			return t.show(cmd, map[string]string{"status": said}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, said)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "whether it runs, ready or not")
	return cmd
}

// health is what the page says, if all is well.
func (t *target) health(ctx context.Context, page string) (string, error) {
	client := &http.Client{Transport: &http.Transport{}}
	if strings.HasPrefix(page, "https:") {
		var err error
		if client, err = t.client(); err != nil {
			return "", err
		}
	}
	defer client.CloseIdleConnections()
	client.Timeout = healthTimeout
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxHealth))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return "", err
	}
	said := line(strings.TrimSpace(string(body)))
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: HTTP %d: %s", page, response.StatusCode, said)
	}
	return said, nil
}
