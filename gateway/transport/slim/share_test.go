package slim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
)

// slowFor answers at once, except that the calls of one caller last until their
// session ends.
type slowFor struct {
	subject string
	running *atomic.Int64
}

func (s slowFor) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	if call.Subject == s.subject {
		s.running.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	return protocol{}.Serve(ctx, call, out)
}

// TestAttack_OneGroupMemberTakesAllCalls is what the bounds of SLIM were missing: all
// members of a group shared 256 calls at once, so one member with that many slow
// calls had all others refused; and a caller had as many again in each of its
// groups. Now each caller has a share, in all its groups together.
func TestAttack_OneGroupMemberTakesAllCalls(t *testing.T) {
	t.Parallel()
	for kind, say := range map[string]func(n int) (string, map[string]string){
		"calls": func(n int) (string, map[string]string) {
			return "x", map[string]string{"rpc-id": strconv.Itoa(n), "slimrpc-dir": "req", "service": "s", "method": "m"}
		},
		"messages": func(n int) (string, map[string]string) {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, n), nil
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node, running := newNode(t), &atomic.Int64{}
				us := memberOf(t, node, slowFor{"org/ns/mallory", running}, 4)
				mallory, victim := newModerator(t, node, "org/ns/mallory"), newModerator(t, node, "org/ns/victim")
				send := func(m *moderator, group uint32, n int) {
					body, metadata := say(n)
					channel := named(t, "org/ns/room").With(name.ID{High: uint64(group), Low: 1})
					if err := m.send(frame.Data(m.to(channel, group, uint32(n)), frame.Msg, frame.Payload{Blob: []byte(body)}, metadata)); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				for _, group := range []uint32{70, 71} {
					if !mallory.invite(t, us.Name(), group, victim.name) {
						t.Fatal("it does not stay")
					}
					for n := range 200 {
						send(mallory, group, n+1)
					}
				}
				if got := running.Load(); got != callsOfOne {
					t.Errorf("one member has %d calls at once, want %d", got, callsOfOne)
				}
				if got := strings.Join(mallory.answers(), "|"); !strings.Contains(got, "too many calls at once") {
					t.Errorf("over its share it hears %q", got)
				}
				victim.answers()
				for _, group := range []uint32{70, 71} {
					send(victim, group, 1)
					if got := strings.Join(victim.answers(), "|"); !strings.Contains(got, "for org/ns/victim") {
						t.Errorf("another member of group %d is answered %q", group, got)
					}
				}
			})
		})
	}
}

// TestAttack_OneModeratorTakesAllGroups: one moderator invited an agent into as many
// groups as it takes part in, and no other member could. Now a quarter is kept for
// moderators that have few.
func TestAttack_OneModeratorTakesAllGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		us := memberOf(t, node, protocol{}, 16)
		mallory, victim := newModerator(t, node, "org/ns/mallory"), newModerator(t, node, "org/ns/victim")
		taken := 0
		for n := range 20 {
			if mallory.invite(t, us.Name(), uint32(70+n)) {
				taken++
			}
		}
		if taken != 12 {
			t.Errorf("one moderator has %d groups, want 12 of 16", taken)
		}
		for n := range 2 {
			if !victim.invite(t, us.Name(), uint32(100+n)) {
				t.Errorf("another moderator's group %d is left", n)
			}
		}
	})
}
