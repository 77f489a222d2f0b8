package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
)

const (
	checkAgents = "agents"
	checkAgent  = "agent"

	atOnce = 8 // agents are asked
)

// agents looks at every agent that is listed.
func (v *checkRun) agents(ctx context.Context) {
	got, err := v.get(ctx, v.Admin+"/api/agents")
	if err != nil {
		v.unanswered(checkAgents, err)
		return
	}
	var listed struct{ Agents []admindoc.Agent }
	if err := json.Unmarshal(got.Body, &listed); err != nil || got.Status != http.StatusOK {
		v.fail(checkAgents, "look at the log of the gateway", "the list of agents is not one (HTTP %d)", got.Status)
		return
	}
	if len(listed.Agents) == 0 {
		v.warn(checkAgents, "add one: aepbctl agents add NAME --mcp URL, or under agents in the configuration", "none is listed")
		return
	}
	breakers := v.breakers(ctx)
	defer v.wait("asking %d agents", len(listed.Agents))()
	quiet := *v // whose requests tell nothing of their own
	quiet.Working = nil
	found := make([][]Finding, len(listed.Agents))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, doc := range listed.Agents {
		group.Go(func() error {
			found[i] = (&agent{checkRun: &quiet, listed: doc, breaker: breakers[cmp.Or(doc.ID, doc.Name)]}).look(ctx)
			return nil
		})
	}
	_ = group.Wait() // none gives an error
	for _, f := range slices.Concat(found...) {
		v.Emit(f)
	}
}

// breakers is how circuit breakers stand, by the SPIFFE id of an agent, else its name. A gateway without them has no list.
func (v *checkRun) breakers(ctx context.Context) map[string]string {
	states := map[string]string{}
	got, err := v.get(ctx, v.Admin+"/api/breakers")
	var all struct {
		Breakers []struct{ Agent, State string }
	}
	if err != nil || json.Unmarshal(got.Body, &all) != nil {
		return states
	}
	for _, b := range all.Breakers {
		states[b.Agent] = b.State
	}
	return states
}

// agent is one that is looked at.
type agent struct {
	*checkRun

	listed  admindoc.Agent
	breaker string // how its circuit breaker stands
	found   []Finding
}

func (a *agent) note(status Status, remedy, format string, args ...any) {
	a.found = append(a.found, Finding{status, checkAgent, a.listed.Name, fmt.Sprintf(format, args...), remedy})
}

// look makes all checks of the agent.
func (a *agent) look(ctx context.Context) []Finding {
	answered, err := a.ask(ctx)
	retired := a.listed.Lifecycle != nil && a.listed.Lifecycle.Status == "retired"
	name := plain(a.listed.Name)
	switch about := answered.Description; {
	case retired:
		a.note(Warning, "take it off the list: aepbctl agents remove "+name, "retired: callers get 410")
	case errors.Is(err, context.DeadlineExceeded):
		a.note(Failed, "see that it runs, and how busy it is; aepbctl agents show "+name+" waits longer", "no answer within %s", terminal.Duration(a.Patience))
	case err != nil:
		a.note(Failed, "look at the log of the gateway", "the gateway does not tell about it: %v", err)
	case about == nil:
		a.note(Failed, "look at the log of the gateway", "the gateway does not describe it")
	case about.Error != "":
		a.note(Failed, "mend that, then: aepbctl agents show "+name+"; callers get an error until then", "%s", strings.TrimPrefix(about.Error, "agent "+a.listed.Name+" "))
	case len(about.Capabilities) == 0:
		a.note(Warning, "see that it is the right URL, and that the agent has tools or skills", "answers as %s %s, but offers nothing", quoted(about.Name), quoted(about.Version))
	default:
		a.note(OK, "", "answers as %s %s, %s %s, %s", cmp.Or(quoted(about.Name), "(no name)"), quoted(about.Version), bindings(a.listed.Endpoints), quoted(about.Protocol), offers(len(about.Capabilities)))
	}
	if about := answered.Description; about != nil {
		for _, o := range about.Omitted {
			a.note(Warning, "mend that at the agent; its other tools work", "tool %s cannot be used and is left out: %s", cmp.Or(quoted(o.Name), "without a name"), plain(o.Reason))
		}
	}
	a.standing()
	for _, pin := range answered.Descriptions {
		if pin.Pending != nil {
			a.note(Warning, "look at it with aepbctl agents show "+name+", then aepbctl agents accept "+name, "a changed description over %s waits to be accepted", pin.Binding)
		}
	}
	if !retired {
		a.certificates(ctx)
	}
	return a.found
}

// ask has the gateway ask the agent who it is.
func (a *agent) ask(ctx context.Context) (admindoc.Agent, error) {
	var doc admindoc.Agent
	got, err := a.get(ctx, a.Admin+"/api/agents/"+url.PathEscape(a.listed.Name))
	switch {
	case err != nil:
		return doc, err
	case got.Status != http.StatusOK:
		return doc, fmt.Errorf("HTTP %d", got.Status)
	}
	return doc, json.Unmarshal(got.Body, &doc)
}

// standing is what the gateway itself says of an agent.
func (a *agent) standing() {
	if l := a.listed.Lifecycle; l != nil {
		switch l.Status {
		case "deprecated":
			a.note(Warning, "have its callers move on; aepbctl lifecycle activate "+plain(a.listed.Name)+" --reason TEXT takes it back", "deprecated: all its answers say so")
		case "draining":
			a.note(Warning, "it is retired for good ten minutes after its last work; until then aepbctl lifecycle activate "+plain(a.listed.Name)+" --reason TEXT takes it back", "draining: new work is refused")
		case "retired":
			a.note(Warning, "remove it, or add its successor under another name", "retired: all its requests are answered with 410")
		}
	}
	switch a.breaker {
	case "open":
		a.note(Warning, "see that the agent is well; it is tried again by itself", "its circuit breaker is open after failed calls: callers get 503")
	case "half_open":
		a.note(Warning, "wait: it closes when the agent answers", "its circuit breaker lets a few calls through to try it")
	}
	if len(a.listed.Callers) == 0 && !a.open {
		a.note(Warning, "name callers: callers in the configuration, or --caller SPIFFE-ID of aepbctl agents add", "no caller may call it: its list of callers is empty")
	}
	if a.listed.From == "process" {
		a.note(Warning, "write it into the configuration, or keep state in state.path, or in state.redis with state.key", "this gateway process alone knows it, until it ends")
	}
}

// certificates looks at those of an agent's endpoints, as this machine sees them. One that
// it does not reach is the gateway's business.
func (a *agent) certificates(ctx context.Context) {
	for _, e := range a.listed.Endpoints {
		leaf := leafOf(ctx, e.URL, a.Patience)
		if leaf == nil {
			continue
		}
		const remedy = "renew the certificate of the agent"
		now, life := a.Now(), identity.Life{From: leaf.NotBefore, Until: leaf.NotAfter}
		switch {
		case life.Ended(now):
			a.note(Failed, remedy, "the certificate of %s expired %s ago, at %s", spiffeID(leaf), terminal.Duration(now.Sub(life.Until)), terminal.Instant(life.Until))
		case endsSoon(life, now):
			a.note(Warning, remedy, "the certificate of %s expires in %s, at %s", spiffeID(leaf), terminal.Duration(life.Until.Sub(now)), terminal.Instant(life.Until))
		}
	}
}

// leafOf is the certificate at a URL; nil: none can be seen. Nothing is sent.
func leafOf(ctx context.Context, at string, patience time.Duration) *x509.Certificate {
	u, err := url.Parse(at)
	if err != nil || !slices.Contains([]string{"https", "wss", "uacps"}, u.Scheme) || u.Hostname() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         u.Hostname(),
		InsecureSkipVerify: true, //nolint:gosec // only the end of its certificate is read; the gateway judges the agent
	}}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	return secure.ConnectionState().PeerCertificates[0]
}

func bindings(endpoints []admindoc.Endpoint) string {
	var all []string
	for _, e := range endpoints {
		all = append(all, e.Binding)
	}
	return cmp.Or(strings.Join(all, ", "), "described by its document")
}

func offers(n int) string {
	if n == 1 {
		return "1 tool or skill"
	}
	return fmt.Sprintf("%d tools or skills", n)
}

// plain is the name of an agent as a command in a remedy has it: what a shell would read
// otherwise, and no gateway gives to an agent, is left out.
func plain(name string) string {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return "NAME"
	}
	return name
}

// quoted is what an agent says of itself, so that its end can be seen.
func quoted(text string) string {
	if strings.ContainsAny(text, " ,\"") || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return strconv.QuoteToASCII(text)
	}
	return text
}
