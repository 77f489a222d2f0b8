package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/snippets"
	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/welcome"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// devTrustDomain is the throw-away trust domain of development gateways.
const devTrustDomain = "aepb.dev"

type devFlags struct {
	addr, adminAddr, uacpAddr, dir, config string
	insecurePublic                         bool
	first                                  firstAgent
}

func devCommand() *cobra.Command {
	var flags devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a development gateway with its own CA and embedded state",
		Args:  cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return flags.first.check(cmd.Flags().Changed)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return dev(cmd.Context(), flags, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&flags.addr, "addr", "127.0.0.1:8443", "public listener")
	cmd.Flags().StringVar(&flags.adminAddr, "admin-addr", "127.0.0.1:9443", "admin listener")
	cmd.Flags().StringVar(&flags.uacpAddr, "uacp-addr", "127.0.0.1:0", "µACP listener")
	cmd.Flags().StringVar(&flags.dir, "dir", ".aepb", "where certificates, keys and state are kept")
	cmd.Flags().StringVar(&flags.config, "config", "", "extra configuration (YAML)")
	cmd.Flags().StringVar(&flags.first.command, "stdio", "", "add an agent at once: the command of an MCP server over standard input and output, such as \"npx -y @modelcontextprotocol/server-filesystem .\"")
	cmd.Flags().StringVar(&flags.first.mcp, "mcp", "", "add an agent at once: the URL of an MCP server")
	cmd.Flags().StringVar(&flags.first.a2a, "a2a", "", "add an agent at once: the URL of an A2A agent")
	cmd.Flags().StringVar(&flags.first.name, "name", "", "the name of that agent (default: from its command or URL)")
	cmd.Flags().BoolVar(&flags.insecurePublic, "insecure-public", false, "listen on addresses that other machines reach, although callers need no credentials")
	return cmd
}

func dev(ctx context.Context, flags devFlags, stdout, stderr io.Writer) error {
	var hangup <-chan os.Signal
	if flags.config != "" { // else there is nothing to read again, and SIGHUP ends it
		signals, deaf := hangups()
		defer deaf()
		hangup = signals
	}
	httpapi.Quiet()
	from, err := server.ReadFile(flags.config)
	if err != nil {
		return err
	}
	extra := from.Config
	if err := flags.private(extra); err != nil {
		return err
	}
	material, err := identity.LoadOrCreate(flags.dir, devTrustDomain, time.Now)
	if err != nil {
		return err
	}
	token, err := adminToken(filepath.Join(flags.dir, "admin-token"))
	if err != nil {
		return err
	}
	sockets, err := server.Listen(config.Listen{Public: flags.addr, Admin: flags.adminAddr, UACP: flags.uacpAddr, GRPC: extra.Listen.GRPC, Metrics: extra.Listen.Metrics})
	if err != nil {
		return err
	}
	if extra.State.Path == "" && !extra.State.Redis.Used() {
		extra.State.Path = filepath.Join(flags.dir, "state.db")
	}
	if extra.Listen.UACPUDP != "" {
		if sockets.Datagrams, err = net.ListenPacket("udp", extra.Listen.UACPUDP); err != nil {
			return errors.Join(err, sockets.Close())
		}
		fmt.Fprintf(stdout, "ready uacp datagrams %s\n", sockets.Datagrams.LocalAddr())
	}
	s, err := server.Development(server.DevelopmentDeps{
		Material: material, Settings: extra, Sockets: sockets, Dir: flags.dir, AdminToken: token, Logger: telemetry.NewLogger(stderr, extra.LogLevel()),
	})
	if err != nil {
		return errors.Join(err, sockets.Close())
	}
	server.LimitMemory(ctx, s.Settings, memlimit.FromCgroup, s.Logger)
	gateway, err := build(s)
	if err != nil {
		return err
	}
	at := sockets.Addresses()
	if err := errors.Join(save(at, flags.dir), showPage(gateway, s, flags.dir)); err != nil {
		return errors.Join(err, gateway.Close())
	}
	if flags.config != "" {
		gateway.Follow(from, hangup)
	}
	ready(stdout, sockets)
	announce(stdout, at, flags.dir)
	announceGRPC(stdout, sockets)
	gateway.LogStart(ctx)
	var adding sync.WaitGroup
	if flags.first.given() {
		adding.Go(func() {
			if err := add(ctx, gateway, flags.first, snippets.Agent{Base: at.Public, CA: shellWord(filepath.Join(flags.dir, "ca.pem"))}, stdout); err != nil {
				fmt.Fprintln(stderr, "aepb-gateway:", err)
			}
		})
	}
	err = gateway.Run(ctx)
	adding.Wait()
	return err
}

// showPage has the public listener show browsers a page at /.
func showPage(gateway *server.Server, s server.Config, dir string) error {
	return gateway.Around(func(next http.Handler) (http.Handler, error) {
		return welcome.Handler(next, welcome.Deps{
			Agents: func() (names []string) {
				for _, agent := range gateway.Directory().List() {
					names = append(names, agent.Name)
				}
				return names
			},
			Base: s.BaseURL, CA: shellWord(filepath.Join(dir, "ca.pem")),
		})
	})
}

// firstAgent is an agent that dev adds at its start. Like all that are added, it stays.
type firstAgent struct{ command, mcp, a2a, name string }

func (f firstAgent) given() bool { return f.command != "" || f.mcp != "" || f.a2a != "" }

// check judges the agent before anything listens.
func (f firstAgent) check(given func(flag string) bool) error {
	ways := slices.DeleteFunc([]string{"stdio", "mcp", "a2a"}, func(flag string) bool { return !given(flag) })
	switch {
	case len(ways) == 0 && f.name != "":
		return errors.New("--name is the name of an agent: give --stdio, --mcp or --a2a too")
	case len(ways) == 0:
		return nil
	case len(ways) > 1:
		return fmt.Errorf("give one of --%s", strings.Join(ways, ", --"))
	case strings.TrimSpace(f.command+f.mcp+f.a2a) == "":
		return fmt.Errorf("--%s is empty", ways[0])
	}
	doc, err := f.document()
	if err != nil {
		return err
	}
	at := doc.Endpoints[0]
	return directory.Validate(directory.Agent{Name: doc.Name, Endpoints: []directory.Endpoint{{Binding: canonical.Binding(at.Binding), URL: at.URL}}}, true)
}

// document is the agent as an operator would add it.
func (f firstAgent) document() (admindoc.Agent, error) {
	e := admindoc.Endpoint{Binding: string(mcp.Binding), URL: f.mcp}
	switch {
	case f.command != "":
		dir, err := os.Getwd()
		if err != nil {
			return admindoc.Agent{}, err
		}
		e.URL = stdio.Program{Command: words(f.command), Dir: dir}.URL()
	case f.a2a != "":
		e = admindoc.Endpoint{Binding: string(a2a.Binding), URL: f.a2a}
	}
	return admindoc.Agent{Name: cmp.Or(f.name, f.derived()), Endpoints: []admindoc.Endpoint{e}}, nil
}

// words takes a command apart. One with quotes or the like is the shell's to read.
func words(command string) []string {
	if strings.ContainsAny(command, "\"'\\$`|&;<>()*?[]#~=%!{}\n") {
		return []string{"sh", "-c", "exec " + command}
	}
	return strings.Fields(command)
}

// derived is a name for the agent: what its command runs, or its host.
func (f firstAgent) derived() string {
	name := ""
	if u, err := url.Parse(cmp.Or(f.mcp, f.a2a)); err == nil {
		name, _, _ = strings.Cut(u.Hostname(), ".")
	}
	for word := range strings.FieldsSeq(f.command) {
		program := strings.TrimSuffix(path.Base(filepath.ToSlash(word)), ".exe")
		if !strings.HasPrefix(word, "-") && !slices.Contains([]string{"npx", "uvx", "uv", "pipx", "run", "node", "python", "python3", "bunx", "deno", "docker", "sh"}, program) {
			name, _, _ = strings.Cut(strings.TrimSuffix(program, path.Ext(program)), "==")
			if base, _, versioned := strings.Cut(path.Base(word), "@"); versioned && base != "" {
				name = base
			}
			break
		}
	}
	name = strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_.-", r) {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-_.")
	if _, err := strconv.Atoi(name); name == "" || err == nil || name == "localhost" {
		return "agent"
	}
	return name[:min(len(name), 63)]
}

// add lists an agent, asks it who it is, and prints how it is called.
func add(ctx context.Context, gateway *server.Server, first firstAgent, snippet snippets.Agent, w io.Writer) error {
	doc, err := first.document()
	if err != nil {
		return err
	}
	if err := gateway.Agents().Put(ctx, doc); err != nil {
		return err
	}
	agent, found := gateway.Directory().Find(doc.Name)
	if !found {
		return fmt.Errorf("agent %s was removed meanwhile", doc.Name)
	}
	description, endpoint, err := gateway.Directory().Describe(ctx, agent, agent.Endpoints[0], "")
	if err != nil {
		fmt.Fprintf(w, "added %s, but it cannot be used now: %s\n", doc.Name, problem.Explain(err))
		return nil
	}
	names := make([]string, len(description.Capabilities))
	for i, c := range description.Capabilities {
		names[i] = strconv.Quote(c.ID)
	}
	fmt.Fprintf(w, "added %s: %q %q, which offers %d: %s\n", doc.Name, description.Name, description.Version, len(names), strings.Join(names, ", "))
	for _, o := range description.Omitted {
		fmt.Fprintf(w, "left out: %q, %s\n", o.Name, o.Reason)
	}
	if endpoint.Why != "" {
		fmt.Fprintf(w, "called at %s: %s\n", endpoint.URL, endpoint.Why)
	}
	snippet.Name = doc.Name
	snippet.Example = snippets.Choose(description.Capabilities)
	return snippets.Print(w, snippet, first.a2a == "")
}

// private refuses listeners that other machines reach: dev lets callers in
// without credentials, and opens all agents to them.
func (f devFlags) private(extra config.Config) error {
	if f.insecurePublic {
		return nil
	}
	for _, one := range []struct{ name, at string }{
		{"--addr", f.addr},
		{"--admin-addr", f.adminAddr},
		{"--uacp-addr", f.uacpAddr},
		{"listen.grpc", extra.Listen.GRPC}, // listen.uacp_udp is always on loopback
		{"listen.metrics", extra.Listen.Metrics},
	} {
		if one.at != "" && !onLoopback(one.at) {
			return fmt.Errorf("%s is no loopback address: a development gateway lets callers in without credentials; "+
				"use 127.0.0.1, run serve, or say --insecure-public if everybody who reaches it may use all agents", one.name)
		}
	}
	return nil
}

// onLoopback reports whether a listener at host:port is reached from this
// machine alone.
func onLoopback(at string) bool {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// save writes the addresses for aepbctl --dir.
func save(a server.Addresses, dir string) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "addresses.json"), append(data, '\n'), 0o600)
}

func announce(w io.Writer, a server.Addresses, dir string) {
	file := func(name string) string { return shellWord(filepath.Join(dir, name)) }
	fmt.Fprintf(w, "try: curl --cacert %s --cert %s --key %s %s/.well-known/aepb\n",
		file("ca.pem"), file("client.pem"), file("client-key.pem"), a.Public)
	fmt.Fprintf(w, "try: %s --dir %s agents list\n", clientProgram(), shellWord(dir))
	fmt.Fprintf(w, "trust: run clients with NODE_EXTRA_CA_CERTS=%[1]s (JavaScript) or SSL_CERT_FILE=%[1]s (Python, Go)\n", file("ca.pem"))
	fmt.Fprintf(w, "next: %s --dir %s agents add NAME with --mcp URL, --a2a URL, or --stdio -- COMMAND\n", clientProgram(), shellWord(dir))
}

// clientProgram is the command that runs aepbctl: with go run, if this program was started so,
// the one beside this program, or the one in PATH.
func clientProgram() string {
	path, err := os.Executable()
	switch beside := filepath.Join(filepath.Dir(path), "aepbctl"); {
	case err == nil && strings.Contains(path, "go-build"):
		return "go run ./cmd/aepbctl"
	case err == nil && isFile(beside):
		return shellWord(beside)
	default:
		return "aepbctl"
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// shellWord writes a path so that a shell reads it as one word.
func shellWord(path string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+,:@%", r)
	}
	if strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// adminToken reads the token that the admin API demands, or makes one (R17).
func adminToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err == nil && len(bytes.TrimSpace(data)) >= 26 {
		return string(bytes.TrimSpace(data)), os.Chmod(file, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	token := rand.Text()
	return token, os.WriteFile(file, []byte(token+"\n"), 0o600)
}
