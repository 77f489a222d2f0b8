package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
)

// agents come and go: one is listed, called, removed, and then unknown.
func (r *rig) listing(ctx context.Context, n int) error {
	name, said := "visitor-"+strconv.Itoa(n%8), word()
	if err := r.gateway.AddAgent(ctx, name, "mcp-v1", r.agents.URL+"/mcp"); err != nil {
		return err
	}
	call := letter{path: "/agents/" + name + "/a2a", body: a2aBody(n, said), says: []string{said}}
	gone := letter{path: call.path, body: call.body, status: http.StatusNotFound, says: []string{"-32602"}}
	_, err := r.send(ctx, call)
	if err = errors.Join(err, r.gateway.RemoveAgent(ctx, name)); err != nil {
		return err
	}
	_, err = r.send(ctx, gone)
	return err
}

// reload gives the gateway a configuration, every third time a bad one.
func (r *rig) reload(_ context.Context, n int) error {
	text := goodConfig + "timeout: " + strconv.Itoa(60+n%30) + "s\n"
	if n%3 == 2 {
		text = badConfig
	}
	return errors.Join(os.WriteFile(r.config, []byte(text), 0o600), r.gateway.Hangup())
}

// reloaded says that both kinds of configuration were seen.
func (r *rig) reloaded(ctx context.Context) error {
	page, err := r.gateway.Metrics(ctx)
	if err != nil {
		return err
	}
	for _, result := range []string{"applied", "refused"} {
		if _, err := metric(page, `aepb_config_reloads_total{result="`+result+`"}`); err != nil {
			return err
		}
	}
	return nil
}
