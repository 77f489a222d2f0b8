package rollbacks

import (
	"context"
	"fmt"

	"github.com/aepb/aepb-gateway/ect"
)

// judgeFailures judges what came of the workflows in which a step failed.
func (g *group) judgeFailures(ctx context.Context, journeys []*journey) (rep Report, err error) {
	rep.Kills, rep.Results, rep.Calls = g.Struck(), map[string]int{}, map[string]int{}
	verifier, err := g.Verifier()
	if err != nil {
		return rep, err
	}
	kind := Kind{Name: g.Name}
	for i, p := range places {
		if i > 0 && places[i-1].phase == p.phase {
			continue
		}
		if rep.Kills[g.Name+" "+string(p.phase)] == 0 {
			rep.Violations = append(rep.Violations, Violation{g.Name, "", "no gateway was killed in the phase " + string(p.phase), ""})
		}
	}
	for n, j := range journeys {
		bookings := g.remember(j.trip)
		_, _, j.steps[stepReserve].deeds = g.dock.account(j.steps[stepReserve].args.of())
		_, _, j.rolledBack = g.dock.account(j.workflow)
		tokens, wrong := g.audit(ctx, verifier, n, j.trip)
		rep.Evidence += len(tokens)
		wrong = append(append(append(wrong, j.judge()...), j.compare(bookings)...), judgeTokens(tokens, ect.Identity(g.Trust.GatewayID()))...)
		for _, what := range wrong {
			rep.Violations = append(rep.Violations, Violation{g.Name, j.workflow, what, j.description()})
		}
		kind.All++
		if len(j.rolledBack) > 0 && len(j.steps[stepBooking].undone) > 0 {
			kind.Rolled++
		}
		if len(wrong) == 0 {
			kind.Completed++
			rep.Results[g.Name+" granted"]++
		}
		rep.Calls[fmt.Sprintf("%s %dx", g.Name, len(j.steps[stepBooking].undone))]++
		rep.Calls[fmt.Sprintf("%s, agent's own %dx", g.Name, len(j.rolledBack))]++
	}
	rep.Kinds = []Kind{kind}
	return rep, ctx.Err()
}

// judge says what is wrong with the calls of a journey.
func (j *journey) judge() (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if j.failure != "" {
		say("%s", j.failure)
	}
	if !j.paused {
		say("the workflow was not paused while an approver was waited for")
	}
	if j.goesOn != "" {
		say("the workflow does not go on after the grant: %s", j.goesOn)
	}
	for i, s := range j.steps {
		if len(s.deeds) != 1 {
			say("step %d was done %d times", i, len(s.deeds))
		}
		if i != stepBooking && len(s.undone) > 0 {
			say("step %d was undone", i)
		}
	}
	for what, deeds := range map[string][]deed{"the compensating call": j.steps[stepBooking].undone, "the rollback of the agent": j.rolledBack} {
		if len(deeds) == 0 {
			say("%s never came", what)
		}
		for _, d := range deeds {
			if first := deeds[0]; d.token != first.token || d.hash != first.hash || d.token == "" {
				say("%s came with the tokens %q and %q, and the hashes %s and %s", what, first.token, d.token, first.hash, d.hash)
			}
		}
	}
	return wrong
}

// compare says which bookings are not as they are to be after the failure.
func (j *journey) compare(bookings map[string]booking) (wrong []string) {
	if !bookings[j.steps[stepBooking].args.of()].canceled {
		wrong = append(wrong, "the booking that the failure was built upon is not canceled")
	}
	if b, there := bookings[j.steps[stepSibling].args.of()]; !there || b.canceled {
		wrong = append(wrong, "the booking of the finished branch is canceled")
	}
	return wrong
}

// judgeTokens says which tokens of a journey lack, or are there twice.
func judgeTokens(tokens []string, gateway ect.Identity) (wrong []string) {
	counts := map[ect.Act]int{}
	for _, compact := range tokens {
		claims, _, err := ect.ParseUnverified(compact) // they were verified before
		status, _ := claims.Ext.String(ect.ExtStatus)
		if err == nil && (claims.Act != ect.ActRollbackResult || claims.Issuer == gateway && status == "completed") {
			counts[claims.Act]++
		}
	}
	for _, want := range []struct {
		act   ect.Act
		count int
	}{{ect.ActCheckpoint, stepsOfJourney + 1}, {ect.ActError, 1}, {ect.ActRollbackResult, 3}} { // one result of each of the two steps that are undone, and one of the rollback
		if counts[want.act] != want.count {
			wrong = append(wrong, fmt.Sprintf("%d tokens say %s, expected %d", counts[want.act], want.act, want.count))
		}
	}
	return wrong
}
