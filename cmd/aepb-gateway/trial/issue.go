package trial

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy"
)

// Request asks for a certificate.
type Request struct {
	Kind  Kind     // KindCaller, KindAgent or KindOperator
	Name  string   // of its files, and the end of its SPIFFE id
	Hosts []string // of an agent: names and addresses of its server; none: localhost
	Roles []string // of an operator, at least one
}

// reserved are names that belong to the files or to the ids of the set-up itself.
var reserved = []string{"anonymous", "ca", "caller", "client", "gateway", "operator"}

// check judges a request.
func (r Request) check() error {
	if err := checkName(r.Name); err != nil {
		return fmt.Errorf("--%s %w", r.Kind, err)
	}
	if slices.Contains(reserved, strings.ToLower(r.Name)) {
		return fmt.Errorf("--%s %s: the set-up itself has this name: choose another one", r.Kind, r.Name)
	}
	if r.Kind == KindOperator {
		return checkRoles(r.Roles)
	}
	if r.Kind == KindAgent && r.Name != strings.ToLower(r.Name) {
		return fmt.Errorf("--agent %s: gateway.yaml takes names of agents with small letters alone: expected %s", r.Name, strings.ToLower(r.Name))
	}
	return checkHosts(r.Hosts)
}

func checkRoles(roles []string) error {
	var known []string
	for _, role := range policy.Roles() {
		known = append(known, string(role))
	}
	if len(roles) == 0 {
		return fmt.Errorf("--operator needs a role: add --role with one of %s", strings.Join(known, ", "))
	}
	for _, role := range roles {
		if !slices.Contains(known, role) {
			return fmt.Errorf("--role %q is no role: expected one of %s", role, strings.Join(known, ", "))
		}
	}
	return nil
}

// Issued is a certificate that was issued for a request.
type Issued struct {
	Request
	SVID *identity.SVID
}

// Issue makes a certificate and a key for each request: for all, or, on an error, for none. It
// replaces no file.
func (f *Folder) Issue(requests []Request) ([]Issued, error) {
	seen := map[string]bool{}
	for _, r := range requests {
		if err := r.check(); err != nil {
			return nil, err
		}
		if seen[r.Name] {
			return nil, fmt.Errorf("%s is asked for twice: its files can be those of one certificate alone", r.Name)
		}
		seen[r.Name] = true
		if err := f.free(r.Name); err != nil {
			return nil, err
		}
	}
	authority, err := f.authority()
	if err != nil {
		return nil, err
	}
	var made []Issued
	for _, r := range requests {
		one, err := f.issue(authority, r)
		if err != nil {
			return nil, errors.Join(err, f.remove(made))
		}
		made = append(made, one)
	}
	return made, nil
}

// free refuses a name whose files are there.
func (f *Folder) free(name string) error {
	certFile, keyFile := f.pair(name)
	for _, file := range []string{certFile, keyFile} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there already, and is not overwritten: choose another name, or issue it anew with --renew %s", file, name)
		}
	}
	return nil
}

func (f *Folder) issue(authority *identity.Authority, r Request) (Issued, error) {
	var request identity.SVIDRequest
	if r.Kind == KindAgent {
		hosts := r.Hosts
		if len(hosts) == 0 {
			hosts = loopback
		}
		addHosts(&request, hosts)
	}
	svid, err := authority.Issue(paths[r.Kind]+r.Name, request)
	if err != nil {
		return Issued{}, err
	}
	return Issued{r, svid}, svid.CreatePEM(f.pair(r.Name))
}

func (f *Folder) remove(made []Issued) error {
	var errs []error
	for _, one := range made {
		certFile, keyFile := f.pair(one.Name)
		errs = append(errs, os.Remove(certFile), os.Remove(keyFile))
	}
	return errors.Join(errs...)
}

// PrintIssued says what was issued and how to go on. word writes a path so that a shell reads it as
// one word.
func (f *Folder) PrintIssued(w io.Writer, word func(string) string, made []Issued) error {
	var out strings.Builder
	for i, one := range made {
		if i > 0 {
			out.WriteString("\n")
		}
		certFile, keyFile := f.pair(one.Name)
		fmt.Fprintf(&out, "issued a certificate for the %s %s, valid until %s:\n  %s, %s\n", one.Kind, one.SVID.ID, day(one.SVID.Expires()), certFile, keyFile)
		id := quoted(string(one.SVID.ID))
		as := fmt.Sprintf("  aepbctl --dir %s --cert %s --key %s ", word(f.dir), word(certFile), word(keyFile))
		switch one.Kind {
		case KindAgent:
			fmt.Fprintf(&out, "its server shows these two and trusts %s. In gateway.yaml, with the address of the server:\n", f.file(identity.AnchorFile))
			fmt.Fprintf(&out, "  agents:\n    %s:\n      id: %s\n", quoted(one.Name), id)
		case KindOperator:
			fmt.Fprintf(&out, "in gateway.yaml:\n  admin:\n    operators:\n      %s: {id: %s, roles: [%s]}\n", quoted(one.Name), id, strings.Join(one.Roles, ", "))
			out.WriteString("then it can ask the gateway:\n" + as + "agents list\n")
		default:
			agent, message, remark := f.call()
			fmt.Fprintf(&out, "in gateway.yaml, at agents.%s, beside the callers that are there:\n  callers: [%s]\n", agent, id)
			fmt.Fprintf(&out, "then it can call%s:\n%ssend --to %s %s\n", remark, as, agent, message)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// call is how the first agent of gateway.yaml is called, an A2A agent if there is one: a command
// that is right as it stands.
func (f *Folder) call() (agent, message, remark string) {
	agent, message, remark = "AGENT", "--text hello", ", with the name of an agent for AGENT"
	text, err := read(f.file("gateway.yaml"))
	if err != nil {
		return agent, message, remark
	}
	c, err := config.Parse(text)
	if err != nil {
		return agent, message, remark
	}
	for i, name := range slices.Sorted(maps.Keys(c.Agents)) {
		endpoints := c.Agents[name].Endpoints
		if slices.ContainsFunc(endpoints, func(e config.Endpoint) bool { return strings.HasPrefix(e.Binding, "a2a") }) {
			return name, "--text hello", ""
		}
		if i == 0 {
			agent, message, remark = name, "--tool TOOL --args '{}'", ", with the name of a tool for TOOL"
		}
	}
	return agent, message, remark
}
