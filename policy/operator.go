package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
)

// errNoRole refuses an operator without a role, who may do nothing.
var errNoRole = errors.New("policy: operator: at least one role is required")

// Role is what an operator may do (R17).
type Role string

// The roles. An operator with any of them may read.
const (
	RoleViewer   Role = "viewer"   // look
	RoleOperator Role = "operator" // change the directory, breakers, lifecycle
	RoleApprover Role = "approver" // decide what waits for a human
	RoleAuditor  Role = "auditor"  // read what operators and agents have done
)

// Roles lists them all.
func Roles() []Role { return []Role{RoleViewer, RoleOperator, RoleApprover, RoleAuditor} }

// Operator is a person or a program that operates the gateway.
type Operator struct {
	Name  string
	ID    ect.Identity // SPIFFE id, exact; empty: known by a token (dev)
	Roles []Role
}

// Validate says what is wrong with an operator: the id is one exact SPIFFE id and
// there is at least one role.
func (o Operator) Validate() error {
	p, err := parsePattern(string(o.ID))
	switch {
	case err != nil || p.prefix || p.operation != "":
		return fmt.Errorf("policy: operator: %q is no exact SPIFFE id", o.ID)
	case strings.HasSuffix(string(o.ID), "/"+anonymous):
		return fmt.Errorf("policy: operator: %q is reserved for callers without credentials: name another id", o.ID)
	case len(o.Roles) == 0:
		return errNoRole
	}
	for _, role := range o.Roles {
		if !slices.Contains(Roles(), role) {
			return fmt.Errorf("policy: operator: %q is no role: use viewer, operator, approver or auditor", role)
		}
	}
	return nil
}

// May says whether the operator has a role.
func (o Operator) May(role Role) bool {
	return slices.Contains(o.Roles, role) || role == RoleViewer && len(o.Roles) > 0
}

// RoleNames are the operator's roles as rules demand them: each alone, and with the operator's name (R23).
func (o Operator) RoleNames() (names []string) {
	for _, role := range o.Roles {
		names = append(names, string(role))
		if o.Name != "" {
			names = append(names, string(role)+":"+o.Name)
		}
	}
	return names
}
