package descriptor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *descriptor.Service {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s, err := descriptor.New(descriptor.Deps{
		Entries: memory.Entries(), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Names: func(_ context.Context, agent string) ([]string, bool) {
			return nil, agent == "billing" || agent == "spiffe://example.com/billing"
		},
		Operators: func() []policy.Operator {
			return []policy.Operator{{Name: "ann", Roles: []policy.Role{policy.RoleOperator}}, {Name: "bob", Roles: []policy.Role{policy.RoleApprover, policy.RoleAuditor}}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plan is a descriptor of one node with these further members.
func plan(name, members string) []byte {
	return []byte(`{"wf_id":"` + name + `","nodes":[{"id":"a","label":"refund"` + members + `}]}`)
}

// TestPut_Versions: each new text is a new version, the newest one again is none, and old ones stay as they were.
func TestPut_Versions(t *testing.T) {
	t.Parallel()
	s := open(t)
	texts := [][]byte{plan("refunds", ""), plan("refunds", `,"reversible":true`), plan("refunds", "")}
	for i, text := range texts {
		for range 2 {
			v, err := s.Put(t.Context(), text, "ann")
			if err != nil || v.Number != i+1 || v.By != "ann" || v.Name != "refunds" || v.At.IsZero() {
				t.Errorf("version %d: %+v, %v", i+1, v, err)
			}
		}
	}
	for i, text := range texts {
		if v, got, err := s.Get(t.Context(), "refunds", i+1); err != nil || string(got) != string(text) || v.Number != i+1 {
			t.Errorf("version %d: %+v, %s, %v", i+1, v, got, err)
		}
	}
	if v, _, err := s.Get(t.Context(), "refunds", 0); err != nil || v.Number != 3 {
		t.Errorf("the newest: %+v, %v", v, err)
	}
	for _, version := range []int{-1, 4} {
		if _, _, err := s.Get(t.Context(), "refunds", version); problem.From(err).Code != problem.CodeNotFound {
			t.Errorf("version %d: %v", version, err)
		}
	}
	if _, _, err := s.Get(t.Context(), "others", 0); problem.From(err).Code != problem.CodeNotFound {
		t.Errorf("another name: %v", err)
	}
}

// TestPut_Refused: what this gateway cannot carry out is not stored.
func TestPut_Refused(t *testing.T) {
	t.Parallel()
	s := open(t)
	for members, want := range map[string]string{
		`,"hitl":true`:          "unknown member",
		`,"agent":"mail"`:       `node "a": agent "mail" is not in the directory`,
		`,"agent":"billing"`:    "",
		`,"hitl_required":true`: "",
		`,"agent":"spiffe://example.com/billing","hitl_required":true,"required_role":"operator"`: "",
		`,"hitl_required":true,"required_role":"operator:ann"`:                                    "",
		`,"hitl_required":true,"required_role":"operator:bob"`:                                    `node "a": gates without role: no operator is operator:bob`,
	} {
		_, err := s.Put(t.Context(), plan("w", members), "ann")
		if _, typed := errors.AsType[*problem.QueryError](err); want == "" && err != nil || want != "" && (!typed || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", members, err, want)
		}
	}
}

// TestPut_Bounds: at most so many versions of a name, and so many names.
func TestPut_Bounds(t *testing.T) {
	t.Parallel()
	s := open(t)
	number := func(i int) string { return fmt.Sprintf(`,"resource_hints":{"timeout_s":%d}`, i) }
	for i := range descriptor.MaxVersions {
		if _, err := s.Put(t.Context(), plan("w0", number(i)), "ann"); err != nil {
			t.Fatal(i, err)
		}
	}
	_, err := s.Put(t.Context(), plan("w0", number(descriptor.MaxVersions)), "ann")
	if _, typed := errors.AsType[*problem.ConflictError](err); !typed || !strings.Contains(err.Error(), "at most 100 versions") {
		t.Errorf("the 101st version: %v", err)
	}
	if v, err := s.Put(t.Context(), plan("w0", number(descriptor.MaxVersions-1)), "ann"); err != nil || v.Number != descriptor.MaxVersions {
		t.Errorf("the newest once more: %+v, %v", v, err)
	}
	for i := range descriptor.MaxNames - 1 {
		if _, err := s.Put(t.Context(), plan(fmt.Sprint("w", i+1), ""), "ann"); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := s.Put(t.Context(), plan("more", ""), "ann"); problem.From(err).Code != problem.CodeConflict {
		t.Errorf("one more name: %v", err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != descriptor.MaxNames || list[0].Name != "w0" || list[0].Number != descriptor.MaxVersions {
		t.Errorf("%d names, %v", len(list), err)
	}
}
