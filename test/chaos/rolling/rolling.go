package rolling

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// Size is how much goes on at once.
type Size struct {
	Calls     int           // each second
	Streams   int           // open
	Tasks     int           // in the background
	Waiting   int           // calls whose answer takes a while
	Questions int           // open
	Pushed    int           // tasks that a webhook is told of
	Grace     time.Duration // how long a gateway that stops waits for its work
	Passes    int           // how often all gateways are restarted, in each way
}

// Full is what the act is played with; Short is a quarter of it.
func Full() Size { return Size{100, 40, 40, 20, 20, 6, 5 * time.Second, 2} }

// Short is played in half a minute.
func Short() Size { return Size{25, 12, 12, 6, 6, 3, 1500 * time.Millisecond, 1} }

// Setup is what an act needs.
type Setup struct {
	Binary, Dir string // of the gateway; for what it writes
	Size        Size
}

const replicas = 3

// Play restarts all gateways under load, and judges what their clients lived through.
func Play(ctx context.Context, s Setup, redis *redisserver.Server) (rep Report, err error) {
	home := filepath.Join(s.Dir, "home")
	trust, err := identity(ctx, s.Binary, home)
	if err != nil {
		return rep, err
	}
	j := &journal{}
	a, err := serveAgents(ctx, trust, j)
	if err != nil {
		return rep, err
	}
	defer a.stop()
	stages := []*stage{
		{fleet: &fleet{name: "redis"}, many: replicas, state: `redis: {plaintext: loopback, addresses: ["` + redis.Address() + `"]}`},
		{fleet: &fleet{name: "bbolt", unsaved: time.Second}, many: 1, state: `path: "` + filepath.Join(s.Dir, "state.db") + `"`},
	}
	var both errgroup.Group
	for _, st := range stages {
		st.agents, st.size, st.turns = a, s.Size, map[string]int{}
		st.fleet.binary, st.fleet.dir, st.fleet.grace = s.Binary, home, s.Size.Grace
		defer func() { err = errors.Join(err, st.fleet.stop(ctx)) }()
		st.caller = &caller{fleet: st.fleet, http: trust.Client(trust.ClientSVID())}
		defer st.caller.http.CloseIdleConnections()
	}
	for _, st := range stages {
		both.Go(func() error { return st.play(ctx) })
	}
	err = both.Wait()
	for _, st := range stages {
		if err == nil {
			err = rep.add(ctx, st, j, home)
		}
		rep.Log += st.fleet.output()
	}
	return rep, err
}

// stage is one fleet under load.
type stage struct {
	fleet  *fleet
	many   int
	state  string
	agents *agents
	caller *caller
	size   Size

	mu    sync.Mutex
	all   []*work
	turns map[string]int // by what there is to do
}

func (s *stage) add(w *work) *work {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, w)
	return w
}

// play starts the gateways, kills them and then ends them in order, while calls go on. It takes a while
// until a killed one is known to be dead: its work is still open while the others end.
func (s *stage) play(ctx context.Context) error {
	if err := launch(ctx, s.fleet, s.many, s.state, s.agents.server.URL); err != nil {
		return err
	}
	if err := s.caller.join(ctx); err != nil {
		return err
	}
	ctx, giveUp := context.WithCancel(ctx)
	calling, enough := context.WithCancel(ctx)
	var calls, works sync.WaitGroup
	calls.Go(func() { s.calls(calling, ctx) })
	defer works.Wait()
	defer giveUp() // after an error; else all has ended by now
	defer calls.Wait()
	defer enough()
	for range s.size.Passes {
		for _, abrupt := range []bool{true, false} {
			for i := range s.fleet.replicas {
				if err := s.roll(ctx, i, abrupt, &works); err != nil {
					return err
				}
			}
		}
		works.Wait()
	}
	return nil
}

// calls makes as many calls a second as are wanted, spread over the replicas.
func (s *stage) calls(ctx, living context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	ways := called()
	for n := 0; wait.Pause(ctx, time.Second/time.Duration(s.size.Calls)); n++ {
		way := ways[n%len(ways)]
		w := s.add(&work{what: whatCall, protocol: way.protocol, agent: way.agent, at: s.caller.place()})
		all.Go(func() { s.caller.call(living, w) })
	}
}

// part is the share of one replica of so many.
func (s *stage) part(n, i int) int {
	return (n*(i+1))/len(s.fleet.replicas) - n*i/len(s.fleet.replicas)
}

// next is the way of the next work of its kind, and how many there were on it.
func (s *stage) next(what string, ways []way) (to way, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := s.turns[what]
	s.turns[what]++
	return ways[turn%len(ways)], turn / len(ways)
}

// roll begins work at one replica, restarts that, and sees what became of the work. It
// returns as soon as the replica is there again and all questions are answered.
func (s *stage) roll(ctx context.Context, i int, abrupt bool, works *sync.WaitGroup) error {
	var acknowledged, answers sync.WaitGroup
	var long atomic.Bool
	restarted := make(chan struct{})
	begin := func(n int, what string, ways []way, run func(w *work, takes time.Duration, acknowledged func())) {
		for range s.part(n, i) {
			to, n := s.next(what, ways)
			w := s.add(&work{what: what, protocol: to.protocol, agent: to.agent, abrupt: abrupt, at: i})
			acknowledged.Add(1)
			works.Go(func() { run(w, takes(w.agent, s.size.Grace, n), sync.OnceFunc(acknowledged.Done)) })
		}
	}
	begin(s.size.Streams, whatStream, streamed(), func(w *work, takes time.Duration, acknowledged func()) {
		s.caller.stream(ctx, w, takes, acknowledged)
	})
	begin(s.size.Tasks, whatTask, promised(), func(w *work, takes time.Duration, acknowledged func()) {
		s.caller.begin(ctx, w, takes, "")
		acknowledged()
		if <-restarted; w.task != "" {
			s.caller.finish(ctx, w)
		}
	})
	begin(s.size.Pushed, whatPushed, streamed(), func(w *work, takes time.Duration, acknowledged func()) {
		s.caller.begin(ctx, w, takes, s.agents.hooks.URL)
		if acknowledged(); w.task != "" {
			s.posted(ctx, w)
		}
	})
	answers.Add(s.part(s.size.Questions, i) + s.part(s.size.Waiting, i))
	begin(s.size.Questions, whatQuestion, questioned(), func(w *work, _ time.Duration, acknowledged func()) {
		done := sync.OnceFunc(answers.Done)
		defer done()
		s.caller.question(ctx, w)
		acknowledged()
		<-restarted
		if w.agent == agentHeld { // that it is lost is known late: nothing waits for it
			done()
		}
		s.caller.answer(ctx, w, 0)
	})
	begin(s.size.Waiting, whatWaiting, called(), func(w *work, takes time.Duration, acknowledged func()) {
		defer answers.Done()
		acknowledged()
		if takes = min(takes, s.size.Grace/2); i == 0 && !abrupt && w.agent == agentWorker && long.CompareAndSwap(false, true) {
			takes = s.size.Grace + time.Second // its gateway does not wait for it
		}
		s.caller.wait(ctx, w, takes)
	})
	acknowledged.Wait()
	wait.Pause(ctx, s.size.Grace/lengths) // some of it ends just now
	err := s.fleet.restart(ctx, i, abrupt)
	close(restarted)
	answers.Wait()
	return err
}

// posted waits for the end of a task at its webhook, and asks then how it ended.
func (s *stage) posted(ctx context.Context, w *work) {
	waiting, cancel := context.WithTimeout(ctx, endsIn)
	defer cancel()
	for len(s.agents.posts.of(w.key)) == 0 && wait.Pause(waiting, askEvery) {
		continue
	}
	s.caller.finish(ctx, w)
}

// way is who speaks to whom.
type way struct{ protocol, agent string }

// called are the ways of a call.
func called() []way {
	return []way{
		{protocolA2A, agentWorker},
		{protocolA2A, agentTools},
		{protocolMCP, agentWorker},
		{protocolMCP, agentTools},
		{protocolLegacy, agentWorker},
		{protocolLegacy, agentTools},
	}
}

// streamed are the ways to what a stream or a webhook is told of.
func streamed() []way {
	return []way{{protocolA2A, agentWorker}, {protocolA2A, agentTools}, {protocolA2A, agentTasks}}
}

// promised are the ways to work in the background, half of them to MCP agents.
func promised() []way {
	return []way{{protocolA2A, agentWorker}, {protocolA2A, agentTasks}, {protocolMCP, agentWorker}, {protocolA2A, agentTools}, {protocolLegacy, agentWorker}, {protocolA2A, agentTasks}}
}

// questioned are the ways in which an agent's question comes.
func questioned() []way {
	return []way{{protocolA2A, agentWorker}, {protocolMCP, agentWorker}, {protocolA2A, agentTools}, {protocolMCP, agentTools}, {protocolA2A, agentTasks}, {protocolA2A, agentHeld}}
}
