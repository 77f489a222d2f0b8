package config

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// maxEvidenceMiB is more than a file should have.
const maxEvidenceMiB = 1 << 20

// operations are what may follow # in a caller pattern: those that reach an agent. A caller with
// any of them may also use the operations that the gateway answers itself.
var operations = []string{
	string(canonical.OpInvoke), string(canonical.OpDescribe), string(canonical.OpTaskGet), string(canonical.OpTaskList),
	string(canonical.OpTaskCancel), string(canonical.OpTaskSubscribe), string(canonical.OpTaskAnswer),
	string(canonical.OpTaskResult), string(canonical.OpPush), string(canonical.OpAnswer), string(canonical.OpAbort), string(canonical.OpNative),
	string(canonical.OpRollback), string(canonical.OpDecision),
}

// levels are the words for assurance levels; none is none declared.
var levels = map[string]ect.Level{"": 0, "L1": ect.L1, "L2": ect.L2, "L3": ect.L3}

// judge finds every mistake that the types do not, but those of places that are left out.
func (c Config) judge(s source, leftOut func(path string) bool) error {
	var errs []error
	c.check(func(path, reason string) {
		if !leftOut(path) {
			errs = append(errs, s.at(path, reason))
		}
	})
	return errors.Join(errs...)
}

func (c Config) check(say func(path, reason string)) {
	var level slog.Level
	if c.Log.Level != "" && level.UnmarshalText([]byte(c.Log.Level)) != nil {
		say("$.log.level", "not debug, info, warn or error")
	}
	if c.State.EvidenceMiB < 0 || c.State.EvidenceMiB > maxEvidenceMiB {
		say("$.state.evidence_mib", "must be between 1 and 1048576")
	}
	c.State.check(say)
	c.checkShares(say)
	if c.Limits != (Limits{}) {
		limits := limit.Config{Rate: c.Limits.Rate, Burst: c.Limits.Burst}.WithDefaults()
		if err := limits.Validate(); err != nil {
			say("$.limits", err.Error())
		}
	}
	for i, code := range c.Policy.AllowLosses {
		if _, ok := canonical.Lookup(canonical.LossCode(code)); !ok {
			say("$.policy.allow_losses["+strconv.Itoa(i)+"]", "no loss "+strconv.Quote(code)+" in the catalogue")
		}
	}
	checkRules(c.Policy, say)
	if _, ok := policy.ParseSecurity(c.Policy.MinSecurity); c.Policy.MinSecurity != "" && !ok {
		say("$.policy.min_protocol_security", "a minimum is tls-1.3")
	}
	if c.Policy.MaxHops != nil && *c.Policy.MaxHops < 0 {
		say("$.policy.max_translation_hops", "must not be negative")
	}
	if level := c.Policy.MinLevel; level != "" && level != "L1" && level != "L2" {
		say("$.policy.min_level", "a minimum level is L1 or L2")
	}
	c.Policy.checkCircuit(say)
	c.Policy.checkCheckpoints(say)
	c.Policy.checkPriorities(c.Agents, say)
	c.Policy.checkApprovals(c.Admin, say)
	c.Consensus.check(say)
	for i, id := range c.Policy.Gateways {
		if err := (policy.Rules{Callers: []string{id}}).Validate(); err != nil {
			say("$.policy.gateways["+strconv.Itoa(i)+"]", err.Error())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Peers)) {
		path := "$.peers.'" + id + "'"
		if _, err := ect.ParseDialect(c.Peers[id].Dialect); c.Peers[id].Dialect != "" && err != nil {
			say(path+".dialect", "a dialect is seed, 00, 01 or dual")
		}
		if level := c.Peers[id].MinLevel; level != "" && level != "L1" && level != "L2" {
			say(path+".min_level", "a minimum level is L1 or L2")
		}
	}
	c.checkGateways(say)
	c.Identity.check(say)
	checkOAuth(c, say)
	c.AINP.check(say)
	c.Admin.check(say)
	if c.PublicRPC != "" && !hostport(c.PublicRPC) {
		say("$.public_grpc", "not host:port")
	}
	if c.Listen.UACPUDP != "" && !loopback(c.Listen.UACPUDP) {
		say("$.listen.uacp_udp", "not an address of this machine: datagrams have no protection")
	}
	c.Listen.check(say)
	c.CORS.check(say)
	c.checkSockets("$.listen.uacp_connections", c.Listen.UACPConnections, say)
	c.checkSockets("$.ainp.sockets", c.AINP.Sockets, say)
	c.SLIM.check(c.Identity.WorkloadAPI != "", say)
	if err := directory.ValidateDocuments(c.VisitorRules(false)); err != nil {
		say("$.documents", err.Error())
	}
	checkLives(c, say)
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		c.Agents[name].check("$.agents.'"+name+"'", say)
		for i, e := range c.Agents[name].Endpoints {
			if e.GRPC != "" && c.Peers[c.Agents[name].ID].InBody {
				say("$.agents.'"+name+"'.endpoints["+strconv.Itoa(i)+"].grpc", "over gRPC its ECTs are in the metadata, and peers have ect_in_body for it")
			}
		}
	}
}

// Bounds of the shares of callers.
const (
	maxRecords  = 1 << 24
	maxMiB      = 65536
	maxSessions = 1 << 16
	maxWorkers  = 10_000
)

// checkShares: a caller has no more than all callers have.
func (c Config) checkShares(say func(path, reason string)) {
	s, l, perAddress := c.State, c.Limits, 0
	if l.ConnectionsPerAddress != nil {
		perAddress = *l.ConnectionsPerAddress
	}
	if l.MemoryMiB != 0 && (l.MemoryMiB < leastMemoryMiB || l.MemoryMiB > mostOfLimit) {
		say("$.limits.memory_mib", "must be between "+strconv.Itoa(leastMemoryMiB)+" and "+strconv.Itoa(mostOfLimit))
	}
	for _, bound := range []struct {
		path        string
		value, most int
	}{
		{"$.state.records", s.Records, maxRecords},
		{"$.state.records_mib", s.RecordsMiB, maxMiB},
		{"$.state.records_per_caller", s.CallerRecords, cmp.Or(s.Records, state.DefaultMaxEntries)},
		{"$.state.records_kib_per_caller", s.CallerRecordsKiB, c.recordsMiB() << 10},
		{"$.state.answers_mib", s.AnswersMiB, maxMiB},
		{"$.state.answers_kib_per_caller", s.CallerAnswersKiB, c.answersMiB() << 10},
		{"$.limits.mcp_sessions", l.Sessions, maxSessions},
		{"$.limits.background", l.AllWorkers, maxWorkers},
		{"$.limits.share", l.Share, mostOfLimit},
		{"$.limits.connections", l.Connections, mostOfLimit},
		{"$.limits.connections_per_address", perAddress, l.connections()},
		{"$.limits.requests", l.Requests, mostOfLimit},
		{"$.limits.streams", l.Streams, mostOfLimit},
		{"$.limits.in_flight_mib", l.InFlightMiB, mostOfLimit},
	} {
		if bound.value < 0 || bound.value > bound.most {
			say(bound.path, "must be between 1 and "+strconv.Itoa(bound.most)+"; 0: the default")
		}
	}
}

// checkGateways: a peer that is one can be asked, and an agent behind one has it
// among the peers.
func (c Config) checkGateways(say func(path, reason string)) {
	gateways := c.PeerGateways(false)
	for _, p := range gateways {
		if err := directory.ValidatePeers([]directory.Peer{p}); err != nil {
			say("$.peers.'"+string(p.ID)+"'.gateway", err.Error())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Peers)) {
		if (policy.Rules{Callers: []string{id}}).Validate() != nil || strings.ContainsAny(id, "*#") {
			say("$.peers.'"+id+"'", "a peer has the name of its SPIFFE id, such as spiffe://example.com/gateway: "+strconv.Quote(id)+" is none")
		}
		if p := c.Peers[id]; p.Gateway == "" && len(p.Callers) > 0 {
			say("$.peers.'"+id+"'.callers", "only of a peer that is a gateway")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		for i, e := range c.Agents[name].Endpoints {
			known := slices.ContainsFunc(gateways, func(p directory.Peer) bool { return string(p.ID) == e.Through })
			if e.Through != "" && !known {
				say("$.agents.'"+name+"'.endpoints["+strconv.Itoa(i)+"].through", "no peer with a gateway has this id")
			}
		}
	}
}

// check: a DID stands for one workload, and not for a group.
func (a AINP) check(say func(path, reason string)) {
	if a.DID != "" && !did(a.DID) {
		say("$.ainp.did", "a DID is a did:key or a did:web")
	}
	for _, who := range slices.Sorted(maps.Keys(a.Callers)) {
		path := "$.ainp.callers.'" + who + "'"
		id := a.Callers[who]
		if !did(who) {
			say(path, "a DID is a did:key or a did:web")
		} else if (policy.Rules{Callers: []string{id}}).Validate() != nil || strings.ContainsAny(id, "*#") {
			say(path, strconv.Quote(id)+" is not the SPIFFE id of a workload, such as spiffe://example.com/calculator")
		}
	}
}

// checkSockets finds bounds that bound nothing, or shares that are larger than the whole.
func (c Config) checkSockets(path string, b ConnectionBounds, say func(path, reason string)) {
	for _, field := range []struct {
		name  string
		value int
	}{{".total", b.Total}, {".per_caller", b.PerCaller}, {".unidentified", b.Unidentified}, {".per_address", b.PerAddress}} {
		if field.value < 0 || field.value > mostOfLimit {
			say(path+field.name, "must be between 1 and "+strconv.Itoa(mostOfLimit))
			return
		}
	}
	switch b = c.Sockets(b); {
	case b.PerCaller > b.Total:
		say(path+".per_caller", "more than total")
	case b.PerAddress > b.Unidentified:
		say(path+".per_address", "more than unidentified")
	}
}

func did(text string) bool {
	return strings.HasPrefix(text, "did:key:") || strings.HasPrefix(text, "did:web:")
}

func (i Identity) check(say func(path, reason string)) {
	for _, domain := range slices.Sorted(maps.Keys(i.Federated)) {
		path := "$.identity.federated.'" + domain + "'"
		switch err := identity.CheckTrustDomain(domain); {
		case err != nil:
			say(path, "no trust domain: a name such as partner.example, lower case, without spiffe://")
		case domain == i.TrustDomain:
			say(path, "is our own trust domain: its anchors belong in identity.bundle")
		case i.Federated[domain] == "":
			say(path, "the file with its trust anchors is missing")
		}
	}
	if i.WorkloadAPI == "" {
		return
	}
	if err := identity.CheckWorkloadAddress(i.WorkloadAPI); err != nil {
		say("$.identity.workload_api", err.Error())
	}
	if i.Certificate != "" || i.Key != "" || i.Bundle != "" {
		say("$.identity.workload_api", "stands instead of certificate, key and bundle")
	}
	if len(i.Federated) > 0 {
		say("$.identity.federated", "the Workload API says which trust domains are federated: take out one of the two")
	}
}

// check: a certificate is one operator's, and everybody has a role.
func (a Admin) check(say func(path, reason string)) {
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(a.Operators)) {
		o, path := a.Operators[name], "$.admin.operators.'"+name+"'"
		if err := o.as(name).Validate(); err != nil {
			say(path, err.Error())
		}
		if other, taken := names[o.ID]; taken {
			say(path+".id", "is also the id of "+strconv.Quote(other))
		}
		names[o.ID] = name
	}
	for i, host := range a.Hosts {
		if !exactHost(host) {
			say("$.admin.hosts["+strconv.Itoa(i)+"]", strconv.Quote(host)+" allows nothing: expected an exact host name or IP address, without scheme, port, path or pattern")
		}
	}
}

func (a Agent) checkTools(path string, say func(path, reason string)) {
	if err := (policy.Rules{Tools: a.Tools}).Validate(); err != nil {
		say(path+".tools", err.Error())
	}
	if err := (policy.Rules{Names: policy.NewNames(a.ToolNames)}).Validate(); err != nil {
		say(path+".tool_names", err.Error())
	}
}

func (a Agent) check(path string, say func(path, reason string)) {
	for i, caller := range a.Callers {
		at := path + ".callers[" + strconv.Itoa(i) + "]"
		if err := (policy.Rules{Callers: []string{caller}}).Validate(); err != nil {
			say(at, err.Error())
		} else if operation := policy.Operation(caller); operation != "" && !slices.Contains(operations, operation) {
			say(at, "no operation "+strconv.Quote(operation)+"; there are "+strings.Join(operations, ", "))
		}
	}
	a.checkTools(path, say)
	for i, what := range a.Expose {
		if at := path + ".expose[" + strconv.Itoa(i) + "]"; !directory.Exposable(what) {
			say(at, "what is exposed is tools, prompts or resources")
		} else if slices.Contains(a.Expose[:i], what) {
			say(at, "stands twice")
		}
	}
	a.checkRevision(path+".revision", say)
	a.checkUndo(path, say)
	a.checkPlaces(path, say)
	a.Credential.check(path+".credential", a, say)
	if _, ok := levels[a.Level]; !ok {
		say(path+".ect_assurance_level", "a level is L1, L2 or L3")
	}
	if len(a.Endpoints) == 0 && a.Capability == "" {
		say(path, "at least one endpoint is required, or a capability document")
	}
	if len(a.Endpoints) > 0 && a.Capability != "" {
		say(path+".capability", "its endpoints are in its capability document: name one or the other")
	}
	for i, e := range a.Endpoints {
		e.check(path+".endpoints["+strconv.Itoa(i)+"]", say)
	}
}

func (e Endpoint) check(path string, say func(path, reason string)) {
	if e.Priority < 0 {
		say(path+".priority", "must not be negative")
	}
	if len(e.Program.Command) > 0 {
		switch program, err := stdio.Parse(e.Program.url()); {
		case err != nil:
			say(path+".program", err.Error())
		case e.URL != "" || e.Through != "":
			say(path+".program", "an endpoint has a program, a url or through: name one of them")
		default:
			if err := program.Find(); err != nil {
				say(path+".program.command", err.Error())
			}
		}
	}
	if e.GRPC != "" && !hostport(e.GRPC) {
		say(path+".grpc", "not host:port")
	}
	if known := bindings(); e.Through == "" && e.Binding != "" && !slices.Contains(known, e.Binding) {
		say(path+".binding", "this gateway does not speak "+strconv.Quote(e.Binding)+": expected one of "+strings.Join(known, ", "))
	}
}

// bindings are the protocols that are spoken here.
func bindings() (list []string) {
	for _, form := range builtin.Forms(translators.Config{}) {
		list = append(list, string(form.Info().Binding))
	}
	return list
}

// checkRevision: it is one that is spoken here, for an endpoint that has no other.
func (a Agent) checkRevision(path string, say func(path, reason string)) {
	pinned := func(e Endpoint) bool {
		return directory.HasRevisions(e.Binding) && e.Through == "" && (e.Version == "" || e.Version == a.Revision)
	}
	switch choices := mcp.Revisions(); {
	case a.Revision == "":
	case !slices.Contains(choices, a.Revision):
		say(path, "no MCP revision "+strconv.Quote(a.Revision)+" is spoken here: expected one of "+strings.Join(choices, ", "))
	case !slices.ContainsFunc(a.Endpoints, pinned):
		say(path, "expected an endpoint with binding mcp-v1, a url, and no other version")
	}
}

func hostport(text string) bool {
	host, port, err := net.SplitHostPort(text)
	number, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && number > 0 && host != "" && !strings.ContainsAny(host, "/@?#% ")
}

// loopback: host:port of this machine.
func loopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// Serve says what production needs besides: an identity, an operator, a public
// URL and no plain HTTP. Its error joins an *Error for each.
func (c Config) Serve() error {
	var errs []error
	for path, value := range map[string]string{
		"identity.trust_domain": c.Identity.TrustDomain, "identity.certificate": c.Identity.Certificate,
		"identity.key": c.Identity.Key, "identity.bundle": c.Identity.Bundle,
		"public_url": c.PublicURL,
	} {
		pushed := c.Identity.WorkloadAPI != "" && strings.HasPrefix(path, "identity.") && path != "identity.trust_domain"
		if value == "" && !pushed {
			errs = append(errs, &Error{Reason: path + ": required by serve"})
		}
	}
	if len(c.Admin.Operators) == 0 {
		errs = append(errs, &Error{Reason: "admin.operators: at least one required by serve"})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Admin.Operators)) {
		domain, _, _ := strings.Cut(strings.TrimPrefix(c.Admin.Operators[name].ID, "spiffe://"), "/")
		if _, known := c.Identity.Federated[domain]; !known && domain != c.Identity.TrustDomain && c.Identity.WorkloadAPI == "" {
			errs = append(errs, &Error{Reason: "admin.operators.'" + name + "'.id: nothing vouches for the trust domain " + strconv.Quote(domain) + ": name it in identity.federated"})
		}
	}
	if (c.TLS.Certificate == "") != (c.TLS.Key == "") {
		errs = append(errs, &Error{Reason: "tls: certificate and key go together"})
	}
	if c.Listen.UACPUDP != "" {
		errs = append(errs, &Error{Reason: "listen.uacp_udp: datagrams have no protection, so only dev takes them"})
	}
	errs = append(errs, c.Listen.serve()...)
	errs = append(errs, c.SLIM.serve()...)
	errs = append(errs, c.State.serve()...)
	if err := c.checkMemory(); err != nil {
		errs = append(errs, err)
	}
	for _, agent := range c.Directory(false) {
		agent.Rules = policy.Rules{} // Parse has judged each caller at its place
		for _, reason := range directory.Mistakes(agent, false) {
			errs = append(errs, &Error{Reason: "agents.'" + agent.Name + "': " + reason})
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// checkRules judges what has a few words to choose from.
func checkRules(p Policy, say func(path, problem string)) {
	for _, rule := range []struct {
		chosen        policy.Constraints
		path, problem string
	}{
		{policy.Constraints{HopScope: policy.HopScope(p.HopScope)}, "$.policy.hop_scope", "hop scope is path or ancestry"},
		{policy.Constraints{Graph: policy.GraphRule(p.Graph)}, "$.policy.graph", "the rule is off, warn or refuse"},
	} {
		if rule.chosen.Validate() != nil {
			say(rule.path, rule.problem)
		}
	}
}
