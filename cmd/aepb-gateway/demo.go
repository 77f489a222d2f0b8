//go:build !nodemo

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
)

const (
	demoTrustDomain = "demo.aepb"
	demoLimit       = time.Minute

	// The scenes beside the main one.
	sceneFailure  = "failure"
	sceneApproval = "approval"
	sceneRollback = "rollback"
)

func demoCommand() *cobra.Command {
	var asJSON, keep bool
	var scene string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Translate between a real A2A agent and a real MCP server, and verify the proof",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), scene, asJSON, keep, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep running, and print how to reach everything")
	cmd.Flags().Func("scene", "play the scene of this `name` instead: "+sceneFailure+" (an agent breaks, recovers, and is retired), "+sceneApproval+" (calls wait for an approver) or "+sceneRollback+" (a failure undoes what led to it)", func(name string) error {
		if scene = name; name != sceneFailure && name != sceneApproval && name != sceneRollback {
			return errors.New("there is no such scene")
		}
		return nil
	})
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if strings.Contains(err.Error(), "--scene") {
			return fmt.Errorf("%w; the scenes are: %s, %s, %s", err, sceneFailure, sceneApproval, sceneRollback)
		}
		return err
	})
	cmd.MarkFlagsMutuallyExclusive("scene", "json") // whose document is of the main one
	cmd.MarkFlagsMutuallyExclusive("scene", "keep")
	return cmd
}

// runDemo plays the demo in a folder of its own, which it removes at the end.
func runDemo(ctx context.Context, scene string, asJSON, keep bool, stdout, stderr io.Writer) (err error) {
	httpapi.Quiet()
	dir, err := os.MkdirTemp("", "aepb-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	material, err := identity.LoadOrCreate(dir, demoTrustDomain, time.Now)
	if err != nil {
		return err
	}
	d := &demoGateway{material: material, dir: dir, logs: stderr}
	if scene == sceneApproval {
		d.approvals = []config.Approval{{Agent: "calculator", Tool: demo.ApprovalTool}}
	}
	if scene == sceneRollback {
		d.compensate = map[string]config.Compensation{demo.BookTool: {
			Tool: demo.CancelTool, Arguments: config.Arguments(`{"booking":{"result":"/booking"}}`),
		}}
		d.document = filepath.Join(dir, "policy.json")
		if err := os.WriteFile(d.document, []byte(demo.CascadePolicy), 0o600); err != nil {
			return err
		}
	}
	if scene != "" {
		d.recorded = make(chan string, 256)
		d.logs = io.Discard // the scene shows what it would say
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	stage, err := demo.Open(ctx, demo.Deps{Development: material, Start: d.start, Bookings: scene == sceneRollback})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStage(ctx, stage)) }()
	play, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	if scene != "" {
		with := demo.Scene{
			Admin: d.at.Admin, Token: d.token, Ahead: func(by time.Duration) { d.ahead.Add(int64(by)) }, Recorded: d.recorded, Out: stdout,
		}
		switch scene {
		case sceneApproval:
			return stage.PlayApproval(play, with)
		case sceneRollback:
			return stage.PlayRollback(play, with)
		}
		return stage.PlayFailure(play, with)
	}
	report, failure := stage.Play(play)
	if err := printReport(report, asJSON, stdout); err != nil {
		return errors.Join(failure, err)
	}
	if failure != nil || !keep {
		return failure
	}
	d.explain(stderr)
	<-ctx.Done()
	return nil
}

func closeStage(ctx context.Context, stage *demo.Stage) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return stage.Close(ctx)
}

func printReport(report demo.Report, asJSON bool, w io.Writer) error {
	if !asJSON {
		return report.Print(w)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(report)
}

// demoGateway is a gateway in this process.
type demoGateway struct {
	material  *identity.Development
	dir       string
	logs      io.Writer
	token     string
	approvals []config.Approval
	// compensate says how the calls of the calculator are undone.
	compensate map[string]config.Compensation
	document   string       // file of the policy document; empty: there is none
	recorded   chan string  // what is recorded, for a scene; nil: for the main one
	ahead      atomic.Int64 // nanoseconds by which the clock of the circuit breakers is ahead
	at         server.Addresses
	cancel     context.CancelFunc
	done       chan error
}

func (d *demoGateway) start(ctx context.Context, agents []demo.Agent) (string, error) {
	sockets, err := server.Listen(config.Listen{Public: "127.0.0.1:0", Admin: "127.0.0.1:0"})
	if err != nil {
		return "", err
	}
	d.at = sockets.Addresses()
	known := config.Config{Agents: map[string]config.Agent{}, Policy: config.Policy{Approvals: d.approvals, Document: d.document}}
	for _, a := range agents {
		agent := config.Agent{ID: string(a.SVID.ID), Endpoints: []config.Endpoint{{Binding: a.Binding, URL: a.URL}}}
		if a.Name == "calculator" {
			agent.Compensate = d.compensate
		}
		if a.Name == demo.DockName {
			agent.Rollback = "own"
		}
		known.Agents[a.Name] = agent
	}
	d.token = rand.Text()
	s, err := server.Development(server.DevelopmentDeps{
		Material: d.material, Settings: known, Sockets: sockets, AdminToken: d.token, Logger: telemetry.NewLogger(d.logs, known.LogLevel()),
	})
	if err != nil {
		return "", errors.Join(err, sockets.Close())
	}
	if d.recorded != nil {
		s.Hooks.Clock = func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) }
		s.Hooks.Observe = func(k *server.Stored) { k.Evidence = recorder{k.Evidence, d.recorded} }
	}
	gateway, err := build(s)
	if err != nil {
		return "", err
	}
	if err := errors.Join(save(d.at, d.dir), os.WriteFile(filepath.Join(d.dir, "admin-token"), []byte(d.token+"\n"), 0o600)); err != nil {
		return "", errors.Join(err, gateway.Close())
	}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.done = make(chan error, 1)
	go func() { d.done <- gateway.Run(ctx) }()
	return d.at.Public, nil
}

// recorder is a store that says what is recorded, while there is place for it.
type recorder struct {
	ect.Store
	recorded chan<- string
}

// Put implements ect.Store.
func (s recorder) Put(ctx context.Context, r ect.Record) error {
	err := s.Store.Put(ctx, r)
	if err == nil {
		select {
		case s.recorded <- r.Compact:
		default:
		}
	}
	return err
}

// stop ends the gateway and waits for it.
func (d *demoGateway) stop() error {
	if d.cancel == nil {
		return nil
	}
	d.cancel()
	return <-d.done
}

func (d *demoGateway) explain(w io.Writer) {
	fmt.Fprintf(w, "\nStill running; stop with Ctrl-C.\n"+
		"  an A2A agent that is an MCP server  %[1]s/agents/calculator/a2a\n"+
		"  an MCP server that is an A2A agent  %[1]s/agents/concierge/mcp\n"+
		"  certificates and keys               %[2]s\n"+
		"  try: %[3]s --dir %[2]s send --to calculator --tool add --args '{\"a\":1,\"b\":2}'\n", d.at.Public, shellWord(d.dir), clientProgram())
}
