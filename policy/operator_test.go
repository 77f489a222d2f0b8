package policy_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
)

func TestOperator_Validate(t *testing.T) {
	t.Parallel()
	const ann = ect.Identity("spiffe://x.example/ann")
	roles := func(r ...policy.Role) []policy.Role { return r }
	for name, tc := range map[string]struct {
		operator policy.Operator
		good     bool
	}{
		"good":            {policy.Operator{ID: ann, Roles: policy.Roles()}, true},
		"no role":         {policy.Operator{ID: ann}, false},
		"unknown role":    {policy.Operator{ID: ann, Roles: roles("root")}, false},
		"no id":           {policy.Operator{Roles: roles(policy.RoleViewer)}, false},
		"many people":     {policy.Operator{ID: "spiffe://x.example/*", Roles: roles(policy.RoleViewer)}, false},
		"an operation":    {policy.Operator{ID: ann + "#x", Roles: roles(policy.RoleViewer)}, false},
		"a trust domain":  {policy.Operator{ID: "spiffe://x.example", Roles: roles(policy.RoleViewer)}, false},
		"nobody":          {policy.Operator{ID: "spiffe://x.example/anonymous", Roles: roles(policy.RoleViewer)}, false},
		"not a SPIFFE id": {policy.Operator{ID: "ann", Roles: roles(policy.RoleViewer)}, false},
	} {
		if err := tc.operator.Validate(); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	auditor := policy.Operator{ID: ann, Roles: roles(policy.RoleAuditor)}
	if !auditor.May(policy.RoleAuditor) || !auditor.May(policy.RoleViewer) || auditor.May(policy.RoleOperator) || auditor.May(policy.RoleApprover) {
		t.Error("an auditor may look and audit, and nothing else")
	}
	if (policy.Operator{}).May(policy.RoleViewer) {
		t.Error("somebody without a role may look")
	}
}
