package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// lostWords stand in the status of a task that the gateway reports as lost.
const lostWords = "whether the agent has finished is not known"

// askEvery is the pace of polling.
const askEvery = 250 * time.Millisecond

const kindTranslate = "translate"

// kinds are all ways to call.
func kinds() []kind {
	all := []kind{
		{kindTranslate, translate},
		{"a2a ask > worker", ask},
		{"mcp modern ask > worker", func(ctx context.Context, c *caller, key string) outcome { return elicited(ctx, c, key, false) }},
		{"mcp legacy ask > worker", func(ctx context.Context, c *caller, key string) outcome { return elicited(ctx, c, key, true) }},
	}
	for _, agent := range []string{"worker", "tools", "classic"} {
		all = append(all,
			kind{"a2a block > " + agent, func(ctx context.Context, c *caller, key string) outcome { return block(ctx, c, agent, key) }},
			kind{"a2a poll > " + agent, func(ctx context.Context, c *caller, key string) outcome { return poll(ctx, c, agent, key) }},
			kind{"a2a stream > " + agent, func(ctx context.Context, c *caller, key string) outcome { return streamed(ctx, c, agent, key) }},
			kind{"mcp modern > " + agent, func(ctx context.Context, c *caller, key string) outcome { return call(ctx, c, agent, key, false) }},
			kind{"mcp legacy > " + agent, func(ctx context.Context, c *caller, key string) outcome { return call(ctx, c, agent, key, true) }},
		)
	}
	return all
}

// agent is an SDK client of one agent's door.
func (c *caller) agent(ctx context.Context, name string) (*a2aclient.Client, error) {
	door := a2a.NewAgentInterface(c.base+"/agents/"+name+"/a2a", a2a.TransportProtocolJSONRPC)
	return a2aclient.NewFromEndpoints(ctx, []*a2a.AgentInterface{door}, a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(c.http))
}

// request says what to do in the words of the agent.
func request(agent, how, key string, now bool) *a2a.SendMessageRequest {
	part := a2a.NewTextPart(how + " " + key)
	if agent != "worker" {
		part = a2a.NewDataPart(map[string]any{"skill": how, "input": json.RawMessage(`{"key":"` + key + `"}`)})
		part.MediaType = "application/json"
	}
	return &a2a.SendMessageRequest{
		Message: a2a.NewMessage(a2a.MessageRoleUser, part), Config: &a2a.SendMessageConfig{ReturnImmediately: now},
	}
}

func block(ctx context.Context, c *caller, agent, key string) outcome {
	client, err := c.agent(ctx, agent)
	if err != nil {
		return failed(err)
	}
	o := sent(client.SendMessage(ctx, request(agent, "quick", key, false))).of(agent)
	o.atOnce = o.end == endRight
	return o
}

// sent is the end of a call that was answered with this.
func sent(result a2a.SendMessageResult, err error) outcome {
	if err != nil {
		return failed(err)
	}
	switch r := result.(type) {
	case *a2a.Task:
		return taskEnd(r)
	case *a2a.Message:
		return outcome{end: endRight, said: answerIn(peers.A2AReply{Message: r}.Text())}
	default:
		return failed(errNothing)
	}
}

var errNothing = errors.New("chaos: neither a task nor a message")

// of says whose the work is, if any was accepted.
func (o outcome) of(agent string) outcome {
	if o.task != "" {
		o.agent = agent
	}
	return o
}

// taskEnd is how a task stands.
func taskEnd(t *a2a.Task) outcome {
	text := peers.A2AReply{Task: t}.Text()
	o := outcome{task: string(t.ID), why: string(t.Status.State) + " " + text}
	switch state := t.Status.State; {
	case state == a2a.TaskStateCompleted:
		o.end, o.said = endRight, answerIn(text)
	case state.Terminal() && strings.Contains(text, lostWords):
		o.end = endLost
	case state.Terminal():
		o.end = endError
	case state == a2a.TaskStateInputRequired:
		o.end = endAsks
	default:
		o.end = endOpen
	}
	return o
}

// poll does not wait, and asks how it goes until it has ended.
func poll(ctx context.Context, c *caller, agent, key string) outcome {
	client, err := c.agent(ctx, agent)
	if err != nil {
		return failed(err)
	}
	o := sent(client.SendMessage(ctx, request(agent, "slow", key, true))).of(agent)
	for o.task != "" && o.end == endOpen && wait.Pause(ctx, askEvery) {
		o = known(ctx, client, o)
	}
	return o.givenUp(time.Now())
}

// givenUp is the end of a call that is not asked about any more. As long as the
// state is not safe a gateway says that it cannot tell, and says so every time:
// that is an answer. Silence for longer than a gateway waits for an agent is none.
func (o outcome) givenUp(now time.Time) outcome {
	switch {
	case o.end == endOpen && now.Sub(o.refused) < agentTimeout:
		o.end = endError
	case o.end == endOpen:
		o.end = endHung
	}
	return o
}

// known asks about a task; what cannot be said now is said later.
func known(ctx context.Context, client *a2aclient.Client, o outcome) outcome {
	task, err := client.GetTask(ctx, &a2a.GetTaskRequest{ID: a2a.TaskID(o.task)})
	switch {
	case errors.Is(err, a2a.ErrTaskNotFound):
		o.end, o.why = endGone, err.Error()
	case err != nil:
		if o.why = err.Error(); howFailed(err) == endError {
			o.refused = time.Now()
		}
	default:
		next := taskEnd(task)
		next.task = o.task
		return next.of(o.agent)
	}
	return o
}

// streamed hears everything.
func streamed(ctx context.Context, c *caller, agent, key string) outcome {
	client, err := c.agent(ctx, agent)
	if err != nil {
		return failed(err)
	}
	return heard(ctx, client, request(agent, "slow", key, false)).of(agent)
}

// heard is how a stream ended.
func heard(ctx context.Context, client *a2aclient.Client, r *a2a.SendMessageRequest) outcome {
	o := outcome{end: endSilent, why: "no event"}
	task := &a2a.Task{}
	for event, err := range client.SendStreamingMessage(ctx, r) {
		if err != nil {
			o.end, o.why = howFailed(err), err.Error()
			return o
		}
		switch e := event.(type) {
		case *a2a.Message:
			o.end, o.said = endRight, answerIn(peers.A2AReply{Message: e}.Text())
		case *a2a.Task:
			task = e
		case *a2a.TaskStatusUpdateEvent:
			task.ID, task.Status = e.TaskID, e.Status
		case *a2a.TaskArtifactUpdateEvent:
			task.ID, task.Artifacts = e.TaskID, append(task.Artifacts, e.Artifact)
		}
		if task.ID != "" {
			o = taskEnd(task)
		}
	}
	if o.end == endOpen {
		o.end = endSilent
	}
	return o
}

// ask is a conversation: the agent asks back, and is answered.
func ask(ctx context.Context, c *caller, key string) outcome {
	client, err := c.agent(ctx, "worker")
	if err != nil {
		return failed(err)
	}
	o := sent(client.SendMessage(ctx, request("worker", "ask", key, false))).of("worker")
	if o.end != endAsks {
		return o
	}
	answer := request("worker", "answer", key, false)
	answer.Message.TaskID = a2a.TaskID(o.task)
	next := sent(client.SendMessage(ctx, answer))
	if next.task == "" {
		next.task = o.task
	}
	return next.of("worker")
}

// seekTime is how long one piece of work may go on after the load: the agents'
// time, and that until a gateway that died is known to be dead.
const seekTime = 60 * time.Second

// seekers ask at once.
const seekers = 16

// seek asks every replica about all accepted work, until it has ended.
func (r *rig) seek(ctx context.Context, outcomes []outcome) map[string][]sight {
	asking := map[string][]*caller{}
	for _, k := range kinds() {
		for _, g := range r.gateways {
			c := r.keeping(g.address, k.name)
			defer c.http.CloseIdleConnections()
			asking[k.name] = append(asking[k.name], c)
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	found := map[string][]sight{}
	places := make(chan struct{}, seekers)
	for _, o := range outcomes {
		if o.task == "" {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			var sights []sight
			for _, c := range asking[o.kind] {
				sights = append(sights, c.sight(ctx, o))
			}
			mu.Lock()
			defer mu.Unlock()
			found[o.task] = sights
		})
	}
	all.Wait()
	return found
}

// sight is what one replica says of work when that has ended.
func (c *caller) sight(ctx context.Context, o outcome) sight {
	ctx, cancel := context.WithTimeout(ctx, seekTime)
	defer cancel()
	o.end, o.said = endBroken, ""
	client, err := c.agent(ctx, o.agent)
	if err != nil {
		return sight{end: endBroken, why: err.Error()}
	}
	for {
		o = known(ctx, client, o)
		if o.end != endOpen && o.end != endBroken || !wait.Pause(ctx, askEvery) {
			return sight{o.end, o.said, o.why}
		}
	}
}
