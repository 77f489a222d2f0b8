package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/inbody"
)

// hooking is a call of the MCP server of which a webhook is told.
func (s *stage) hooking() transport.Call {
	const config = `{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/"}},"message"`
	return s.adds(invoking, strings.Replace(adding, `{"message"`, config, 1))
}

// hooked begins that.
func (s *stage) hooked() (id string) {
	s.t.Helper()
	id, _ = taskIn(s.t, s.ask(s.t, s, s.hooking()).Wire.Body)
	return id
}

// mails are what was posted: the bodies, and the ECT of each.
func (s *stage) mails() (bodies []string, proofs []ect.Claims) {
	s.t.Helper()
	s.posts.mu.Lock()
	defer s.posts.mu.Unlock()
	for i, taken := range s.posts.taken {
		_, body, _ := strings.Cut(taken, " ")
		if len(s.posts.proofs[i]) != 1 {
			s.t.Fatalf("with %s come %q", body, s.posts.proofs[i])
		}
		bodies, proofs = append(bodies, body), append(proofs, claims(s.t, s.posts.proofs[i][0]))
	}
	return bodies, proofs
}

// TestPostsAreProven: what a webhook is told is a translation like any other, and
// nothing is told without an ECT on record (AEPB, Gateway Requirements item 3).
func TestPostsAreProven(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		id := s.hooked()
		close(s.tools.gate)
		synctest.Wait()
		bodies, proofs := s.mails()
		if len(bodies) != 3 || !strings.Contains(bodies[0], "WORKING") || !strings.Contains(bodies[1], `"sum":3`) || !strings.Contains(bodies[2], "COMPLETED") {
			t.Fatalf("posted was %s", bodies)
		}
		request := claims(t, s.tools.tokens[0][0])
		for i, got := range proofs {
			if found, err := ecttest.Find(t.Context(), s.memory, got.ID); err != nil || len(found) != 1 {
				t.Errorf("on record: %v %v", found, err)
			}
			if got.OutputHash != ect.Hash([]byte(bodies[i])) || got.InputHash == "" || got.Act != ect.ActTranslate || got.Workflow != request.Workflow ||
				!slices.Equal(got.Audience, []string{string(s.caller.ID)}) || len(got.Parents) != 1 || !s.behind(got.Parents[0], request.ID) {
				t.Errorf("%+v behind %s", got, request.ID)
			}
			for key, want := range map[string]string{
				ect.ExtLeg: "reply", ect.ExtSourceProtocol: "mcp-v1", ect.ExtDestProtocol: "a2a-v1", ect.ExtCaller: string(s.caller.ID),
			} {
				if said, _ := got.Ext.String(key); said != want {
					t.Errorf("%s is %q, not %q", key, said, want)
				}
			}
			if unattested, _ := got.Ext.Bool(ect.ExtSourceUnattested); !unattested {
				t.Error("its source was attested by nobody")
			}
		}
		if told := string(s.ask(t, s, s.adds(looking, `{"id":"`+id+`"}`)).Wire.Body); !strings.Contains(told, "COMPLETED") {
			t.Errorf("it stands as %s", told)
		}
	})
}

// behind: a token is another, or descends from it.
func (s *stage) behind(id, ancestor ect.ID) bool {
	s.t.Helper()
	if id == ancestor {
		return true
	}
	found, err := ecttest.Find(s.t.Context(), s.memory, id)
	if err != nil || len(found) != 1 {
		return false
	}
	return slices.ContainsFunc(found[0].Parents, func(p ect.ID) bool { return s.behind(p, ancestor) })
}

func TestPostsOfAnAttestedCall(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		call := s.hooking()
		workflow := string(ect.NewID())
		token, err := s.caller.Signer(s.t, time.Now).Sign(ect.Claims{
			Audience: []string{string(s.self.ID)}, Workflow: workflow, Act: "send_task", OutputHash: ect.Hash(call.Wire.Body),
		})
		if err != nil {
			s.t.Fatal(err)
		}
		call.Evidence = []string{token.Compact()}
		s.ask(s.t, s, call)
		close(s.tools.gate)
		synctest.Wait()
		_, proofs := s.mails()
		if len(proofs) != 3 {
			s.t.Fatalf("%d posts", len(proofs))
		}
		for _, got := range proofs {
			if got.Ext[ect.ExtSourceUnattested] != nil || got.Workflow != workflow || !s.behind(got.Parents[0], token.ID()) {
				s.t.Errorf("%+v", got)
			}
		}
	})
}

// TestPostsWithTheirTokensInside: a caller with ect_in_body has them there too.
func TestPostsWithTheirTokensInside(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		s.Apply(gateway.Settings{ECTInBody: map[ect.Identity]bool{s.caller.ID: true}})
		s.hooked()
		close(s.tools.gate)
		synctest.Wait()
		bodies, proofs := s.mails()
		if len(bodies) != 3 {
			t.Fatalf("posted was %s", bodies)
		}
		for i, body := range bodies {
			wire, tokens, err := inbody.Take(a2a.New(translators.Config{}), translators.Wire{
				Binding: a2a.Binding, Form: a2a.FormHTTP, Media: a2a.MediaHTTP, Re: canonical.OpInvoke, Event: true, Body: []byte(body),
			})
			if err != nil || len(tokens) != 1 || claims(t, tokens[0]).ID != proofs[i].ID {
				t.Fatalf("inside are %q, %v: %s", tokens, err, body)
			}
			if form, _ := proofs[i].Ext.String(ect.ExtHashForm); form != inbody.HashForm || proofs[i].OutputHash != ect.Hash(wire.Body) {
				t.Errorf("hashed as %q: %s", form, wire.Body)
			}
		}
	})
}

// TestNoPostsAgainstPolicy: who may not be answered any more is not told either.
func TestNoPostsAgainstPolicy(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		s.hooked()
		s.Apply(gateway.Settings{Constraints: policy.Constraints{RestrictDest: true}})
		close(s.tools.gate)
		synctest.Wait()
		if got := s.posted(); got != "" {
			s.t.Errorf("posted was %s", got)
		}
	})
}

// TestNoPostsWithoutEvidence: while no ECT can be put on record nothing is posted;
// how it ended is, as soon as one can.
func TestNoPostsWithoutEvidence(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		if err := s.TakeOver(); err != nil {
			s.t.Fatal(err)
		}
		s.hooked()
		s.records.broken.Store(true)
		close(s.tools.gate)
		<-time.After(10 * time.Second)
		if got := s.posted(); got != "" {
			s.t.Errorf("posted was %s", got)
		}
		s.records.broken.Store(false)
		<-time.After(time.Minute)
		if got := s.posted(); strings.Count(got, "COMPLETED") != 1 || !strings.Contains(got, `"sum":3`) {
			s.t.Errorf("posted was %s", got)
		}
	})
}
