package doctor

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

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
)

// Commands are the commands of the group.
func Commands(c *client.Client) []*cobra.Command {
	return []*cobra.Command{doctorCommand(c), healthzCommand(c)}
}

func doctorCommand(c *client.Client) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the whole set-up of a gateway, and say what to do about each finding",
		Long: "Check the whole set-up of a gateway: certificates, both listeners, clocks, readiness, state,\n" +
			"disk and memory of this machine, and each agent. Each check ends within " + terminal.Duration(Patience) + " and gives a\n" +
			"line: ok, warning or FAILED, and for the latter two what to do. With --config also what\n" +
			"aepb-gateway check-config says, if that program lies beside this one. Exit code 0: nothing\n" +
			"failed, 1: something did.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return examine(cmd, c, file) },
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the gateway, to check too")
	return cmd
}

// examination is what the doctor found.
type examination struct {
	OK       bool      `json:"ok"` // nothing failed
	Failed   int       `json:"failed"`
	Warnings int       `json:"warnings"`
	Findings []Finding `json:"findings"`
}

// examine prints findings as they come, or as data at the end.
func examine(cmd *cobra.Command, c *client.Client, file string) error {
	public, wrong := c.PublicURL()
	admin, none := c.AdminURL()
	if wrong == nil {
		wrong = none
	}
	token, unreadable := c.Token()
	all := examination{OK: true, Findings: []Finding{}}
	deps := Deps{
		Public: public, Admin: admin, Unknown: wrong, Token: token, Dir: c.Dir, Config: file,
		Cert: c.CertFile(), Key: c.KeyFile(), CA: c.CAFile(),
		CheckConfig: checkConfig, Now: time.Now, Patience: Patience,
		Working: func(doing string) func() { return terminal.Progress(cmd, doing) },
		Emit: func(f Finding) {
			all.add(f)
			if c.Output == "text" {
				printFinding(cmd.OutOrStdout(), f)
			}
		},
	}
	if c.Gateway != "" && c.Admin != "" {
		deps.Dir = "" // which is another gateway's
	}
	if unreadable != nil {
		deps.Emit(Finding{Status: Failed, Check: "operator", Found: unreadable.Error(), Remedy: "run this as the user of the gateway, or make the file readable for this one"})
	}
	Run(cmd.Context(), deps)
	if err := c.Show(cmd, all, all.summary); err != nil {
		return err
	}
	if !all.OK {
		return program.ErrRefused
	}
	return nil
}

// Run makes all checks and emits a finding for each.
func Run(ctx context.Context, d Deps) {
	v := &checkRun{Deps: d}
	v.configuration(ctx)
	v.certificate()
	v.authority()
	source := v.source()
	if d.Unknown != nil {
		v.fail("addresses", "give the folder of a gateway that has run with --dir, or name its listeners with --gateway and --admin", "%v", d.Unknown)
		return
	}
	public := v.listener(ctx, publicListener(), d.Public, source)
	admin := v.listener(ctx, adminListener(), d.Admin, source)
	if source != nil {
		config := source.ClientConfig("")
		config.ServerName = v.name
		v.client = &http.Client{
			Timeout:       d.Patience,
			Transport:     &http.Transport{TLSClientConfig: config},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		defer v.client.CloseIdleConnections()
	}
	if public && v.client != nil {
		v.clock(ctx)
	}
	if admin && v.client != nil {
		v.readiness(ctx)
		v.measured(ctx)
		if v.operator(ctx) {
			restart(ctx, v)
			v.agents(ctx)
		}
	}
	v.disks()
	v.memory()
}

func (e *examination) add(f Finding) {
	switch e.Findings = append(e.Findings, f); f.Status {
	case Failed:
		e.Failed++
		e.OK = false
	case Warning:
		e.Warnings++
	default:
	}
}

func (e *examination) summary(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d checks: %d ok, %d with a warning, %d failed\n", len(e.Findings), len(e.Findings)-e.Warnings-e.Failed, e.Warnings, e.Failed)
	return err
}

func printFinding(w io.Writer, f Finding) {
	status, about := fmt.Sprintf("%-8s", terminal.Line(string(f.Status))), f.Check
	switch f.Status {
	case OK:
		status = terminal.Good(w, status)
	case Failed:
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

// Where healthz looks by itself, and how long it waits.
const (
	defaultMonitoring = "http://127.0.0.1:9464"
	healthTimeout     = 5 * time.Second
	maxHealth         = 1 << 10 // bytes of the answer that are read
)

func healthzCommand(c *client.Client) *cobra.Command {
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
			text, err := health(cmd.Context(), c, base+path)
			if err != nil {
				return err
			}
			return c.Show(cmd, map[string]string{"status": text}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, text)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "whether it runs, ready or not")
	return cmd
}

// health is what the page says, if all is well.
func health(ctx context.Context, c *client.Client, page string) (string, error) {
	client := &http.Client{Transport: &http.Transport{}}
	if strings.HasPrefix(page, "https:") {
		var err error
		if client, err = c.HTTP(); err != nil {
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
