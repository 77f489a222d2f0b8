package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/policy"
)

const (
	checkOperator  = "operator"
	checkReadiness = "readiness"
	checkIdentity  = "gateway identity"
	checkState     = "state"
)

// readiness asks whether the gateway takes work, and why not.
func (v *checkRun) readiness(ctx context.Context) {
	got, err := v.get(ctx, v.Admin+"/readyz")
	if err != nil {
		v.unanswered(checkReadiness, err)
		return
	}
	if got.Status == http.StatusOK {
		v.ok(checkReadiness, "the gateway takes work")
		return
	}
	v.ready = strings.TrimSpace(string(got.Body[:min(len(got.Body), 1<<10)]))
	v.fail(checkReadiness, remedyOf(v.ready), "the gateway is not ready: %s (HTTP %d)", v.ready, got.Status)
}

// remedyOf is what to do about a gateway that is not ready.
func remedyOf(reason string) string {
	for _, row := range []struct{ contains, remedy string }{
		{"maxmemory-policy", "on each Redis server: CONFIG SET maxmemory-policy noeviction, and the same in its configuration; the gateway asks again by itself"},
		{"appendonly is off", "on each Redis server: CONFIG SET appendonly yes, and the same in its configuration; or set state.redis.durability if something else makes it durable"},
		{"Redis", "see that Redis runs, that this gateway reaches it, and state.redis; the gateway asks again by itself"},
		{"state cannot be kept", "look at the disk and the rights of state.path; the log of the gateway names the reason"},
		{"stopping", "wait until it has ended, and start it again if it should run"},
		{"replay protection", "wait: it takes seconds after a start"},
		{"no trust bundle", "put the trust anchors of now into identity.bundle, or see that the SPIFFE agent has them"},
		{"expired", "put renewed files in place of the old ones, or see that the SPIFFE agent runs; they are read by themselves"},
	} {
		if strings.Contains(reason, row.contains) {
			return row.remedy
		}
	}
	return "look at the log of the gateway"
}

// operator asks as whom the gateway knows us. Without an answer nothing of the admin API
// can be asked.
func (v *checkRun) operator(ctx context.Context) bool {
	got, err := v.get(ctx, v.Admin+"/api/operator")
	if err != nil {
		v.unanswered(checkOperator, err)
		return false
	}
	var self admindoc.Operator
	switch got.Status {
	case http.StatusOK:
		if err := json.Unmarshal(got.Body, &self); err != nil {
			v.fail(checkOperator, "see whether "+v.Admin+" is a gateway's admin listener", "the answer is not one of a gateway: %v", err)
			return false
		}
	case http.StatusNotFound:
		v.ok(checkOperator, "known; this gateway is of a version that does not say with which roles")
		return true
	default:
		v.noOperator(got)
		return false
	}
	v.open = self.Open
	roles := make([]string, len(self.Roles))
	for i, role := range self.Roles {
		roles[i] = string(role)
	}
	if !slices.Contains(self.Roles, policy.RoleOperator) {
		v.warn(checkOperator, "add the role operator under admin.operators in the gateway's configuration if you are to change agents", "known as %s, who may look and not change anything: %s", self.Name, strings.Join(roles, ", "))
		return true
	}
	v.ok(checkOperator, "known as %s: %s", self.Name, strings.Join(roles, ", "))
	return true
}

// noOperator says why the admin API refuses us.
func (v *checkRun) noOperator(got client.Answer) {
	var p struct{ Code, Detail string }
	_ = json.Unmarshal(got.Body, &p) // what is no problem document has no detail
	switch {
	case got.Status == http.StatusUnauthorized && v.Token != "":
		v.fail(checkOperator, "give the folder of this very gateway with --dir: its admin-token counts", "the token in %s is not this gateway's", v.Dir)
	case got.Status == http.StatusUnauthorized:
		v.fail(checkOperator, "give the folder of the development gateway with --dir, without --cert or --admin: its admin-token counts", "the gateway wants its token")
	case got.Status == http.StatusForbidden && strings.Contains(p.Detail, "operator"):
		v.fail(checkOperator, "add to the gateway's configuration: admin: {operators: {NAME: {id: \""+string(v.svid.ID)+"\", roles: [operator]}}}; or show an operator's certificate with --cert and --key",
			"%s is no operator of this gateway", v.svid.ID)
	case got.Status == http.StatusForbidden:
		v.fail(checkOperator, "reach it as localhost or 127.0.0.1, or add the host name to admin.hosts in the gateway's configuration", "the gateway refuses requests to %s: %s", v.Admin, p.Detail)
	default:
		v.fail(checkOperator, "see whether "+v.Admin+" is a gateway's admin listener, and at the log of the gateway", "the admin API answers HTTP %d %s", got.Status, p.Code)
	}
}

// measured reads what only metrics tell.
func (v *checkRun) measured(ctx context.Context) {
	got, err := v.get(ctx, v.Admin+"/metrics")
	if err == nil && got.Status != http.StatusOK {
		v.warn("metrics", "see whether "+v.Admin+" is a gateway's admin listener", "/metrics answers HTTP %d: identity and state cannot be checked", got.Status)
		return
	}
	if err != nil {
		v.unanswered("metrics", err)
		return
	}
	m := measuresOf(got.Body)
	v.identities(m)
	v.state(m)
}

// identities looks at how long the gateway's own certificates and anchors hold.
func (v *checkRun) identities(m measures) {
	const soon, week = 10 * time.Minute, 7 * 24 * time.Hour
	for _, one := range []struct {
		metric, label, what, remedy string
		soon                        time.Duration
	}{
		{"aepb_identity_expiry_timestamp_seconds", "svid", "SVID", "put renewed files in place of identity.certificate and identity.key, or see that the SPIFFE agent runs; in dev, start it again", soon},
		{"aepb_identity_expiry_timestamp_seconds", "public", "certificate of tls.certificate", "put renewed files in place of tls.certificate and tls.key", week},
		{"aepb_bundle_expiry_timestamp_seconds", "", "trust bundle", "put the trust anchors of now into identity.bundle or identity.federated, or see that the SPIFFE agent has them", week},
	} {
		for _, label := range slices.Sorted(maps.Keys(m[one.metric])) {
			if one.label != "" && label != one.label {
				continue
			}
			what := one.what
			if one.label == "" {
				what += " of " + label
			}
			v.ending(what, one.remedy, time.Unix(int64(m[one.metric][label]), 0), one.soon)
		}
	}
}

// ending emits when something of the gateway ends. Its beginning is known only if it is
// the certificate that the gateway showed.
func (v *checkRun) ending(what, remedy string, until time.Time, soon time.Duration) {
	now := v.Now()
	near, age := until.Sub(now) < soon, ""
	if v.shown != nil && v.shown.NotAfter.Unix() == until.Unix() {
		near = endsSoon(identity.Life{From: v.shown.NotBefore, Until: until}, now)
		age = ", issued " + terminal.Duration(now.Sub(v.shown.NotBefore)) + " ago"
	}
	switch {
	case until.Unix() == 0:
		v.fail(checkIdentity, remedy, "%s: the gateway knows none", what)
	case now.After(until):
		v.fail(checkIdentity, remedy, "%s expired %s ago, at %s", what, terminal.Duration(now.Sub(until)), terminal.Instant(until))
	case near:
		v.warn(checkIdentity, remedy, "%s expires in %s, at %s", what, terminal.Duration(until.Sub(now)), terminal.Instant(until))
	default:
		v.ok(checkIdentity, "%s%s, valid for %s", what, age, terminal.Duration(until.Sub(now)))
	}
}

// state looks at where the gateway keeps what it must remember.
func (v *checkRun) state(m measures) {
	const full = 0.7
	for backend, up := range m["aepb_state_backend_up"] {
		switch {
		case up != 1 && backend == "redis":
			v.fail(checkState, remedyOf(v.ready+" Redis"), "Redis cannot be used: %s", cmp.Or(v.ready, "the gateway gives no reason"))
		case up != 1:
			v.fail(checkState, "look at the disk and the rights of state.path; the log of the gateway names the reason", "the state (%s) cannot be written", backend)
		case backend == "memory":
			v.ok(checkState, "in memory: evidence, tasks and agents that were added end with the process (state.path keeps them)")
		default:
			v.ok(checkState, "kept in %s, available", map[string]string{"bolt": "a file", "redis": "Redis, which forgets nothing by itself (noeviction)"}[backend])
		}
	}
	for _, one := range []struct{ kind, what, remedy string }{
		{"lasting_entries", "records that may not be dropped", "raise state.records and state.records_mib"},
		{"memory", "Redis memory (maxmemory)", "raise maxmemory of Redis"},
	} {
		if part := m["aepb_state_usage_ratio"][one.kind]; part > full {
			v.warn(checkState, one.remedy+": near 75 % new tasks are refused", "%.0f %% of the %s is in use", part*100, one.what)
		}
	}
}
