package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/doctor"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
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
			text, err := t.health(cmd.Context(), base+path)
			if err != nil {
				return err
			}
			return t.show(cmd, map[string]string{"status": text}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, text)
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
	text := terminal.Line(strings.TrimSpace(string(body)))
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: HTTP %d: %s", page, response.StatusCode, text)
	}
	return text, nil
}

func doctorCommand(t *target) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the whole set-up of a gateway, and say what to do about each finding",
		Long: "Check the whole set-up of a gateway: certificates, both listeners, clocks, readiness, state,\n" +
			"disk and memory of this machine, and each agent. Each check ends within " + terminal.Duration(doctor.Patience) + " and gives a\n" +
			"line: ok, warning or FAILED, and for the latter two what to do. With --config also what\n" +
			"aepb-gateway check-config says, if that program lies beside this one. Exit code 0: nothing\n" +
			"failed, 1: something did.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.examine(cmd, file) },
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the gateway, to check too")
	return cmd
}

// examination is what the doctor found.
type examination struct {
	OK       bool             `json:"ok"` // nothing failed
	Failed   int              `json:"failed"`
	Warnings int              `json:"warnings"`
	Findings []doctor.Finding `json:"findings"`
}

// examine prints findings as they come, or as data at the end.
func (t *target) examine(cmd *cobra.Command, file string) error {
	public, wrong := t.base(t.gateway, "public")
	admin, none := t.base(t.admin, "admin")
	if wrong == nil {
		wrong = none
	}
	token, unreadable := t.token()
	all := examination{OK: true, Findings: []doctor.Finding{}}
	deps := doctor.Deps{
		Public: public, Admin: admin, Unknown: wrong, Token: token, Dir: t.dir, Config: file,
		Cert: t.file(t.cert, "client.pem"), Key: t.file(t.key, "client-key.pem"), CA: t.file(t.ca, "ca.pem"),
		CheckConfig: checkConfig, Span: terminal.Duration, Now: time.Now, Patience: doctor.Patience,
		Working: func(doing string) func() { return terminal.Progress(cmd, doing) },
		Emit: func(f doctor.Finding) {
			all.add(f)
			if t.output == "text" {
				printFinding(cmd.OutOrStdout(), f)
			}
		},
	}
	if t.gateway != "" && t.admin != "" {
		deps.Dir = "" // which is another gateway's
	}
	if unreadable != nil {
		deps.Emit(doctor.Finding{Status: doctor.Failed, Check: "operator", Found: unreadable.Error(), Remedy: "run this as the user of the gateway, or make the file readable for this one"})
	}
	doctor.Run(cmd.Context(), deps)
	if err := t.show(cmd, all, all.summary); err != nil {
		return err
	}
	if !all.OK {
		return errRefused
	}
	return nil
}

func (e *examination) add(f doctor.Finding) {
	switch e.Findings = append(e.Findings, f); f.Status {
	case doctor.Failed:
		e.Failed++
		e.OK = false
	case doctor.Warning:
		e.Warnings++
	default:
	}
}

func (e *examination) summary(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d checks: %d ok, %d with a warning, %d failed\n", len(e.Findings), len(e.Findings)-e.Warnings-e.Failed, e.Warnings, e.Failed)
	return err
}

func printFinding(w io.Writer, f doctor.Finding) {
	status, about := fmt.Sprintf("%-8s", terminal.Line(string(f.Status))), f.Check
	switch f.Status {
	case doctor.OK:
		status = terminal.Good(w, status)
	case doctor.Failed:
		status = terminal.Bad(w, fmt.Sprintf("%-8s", "FAILED"))
	default:
	}
	if f.Agent != "" {
		about += " " + terminal.Word(f.Agent)
	}
	fmt.Fprintf(w, "%s %-17s %s\n", status, terminal.Line(about), terminal.Line(f.Found))
	if f.Remedy != "" {
		fmt.Fprintf(w, "         %-17s -> %s\n", "", terminal.Line(f.Remedy))
	}
}

// checkConfig runs the gateway's program that lies beside this one, and is of its version.
func checkConfig(ctx context.Context, file string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", errors.ErrUnsupported
	}
	program := filepath.Join(filepath.Dir(self), "aepb-gateway")
	if _, err := os.Stat(program); err != nil {
		return "", errors.ErrUnsupported
	}
	out, err := exec.CommandContext(ctx, program, "check-config", file).CombinedOutput() //nolint:gosec // the user's own file
	return string(out), err
}
