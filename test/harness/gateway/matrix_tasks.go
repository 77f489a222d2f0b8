package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Works begins work that goes on until it is finished by its name.
func (c *Caller) Works(ctx context.Context, do string) (name string, h *Received) {
	return c.worksIn(ctx, do, "")
}

// worksIn does, in a dialogue.
func (c *Caller) worksIn(ctx context.Context, do, dialogue string) (name string, h *Received) {
	name = string(ect.NewID())
	if c.side.Form == ainp.FormSocket { // where who asks hears it to the end; who posts need not
		posts := c.Simulator.plainly(c)
		c = posts
	}
	m := c.Request(canonical.OpInvoke, c.Invoke(do+" "+name))
	m.Conversation.ContextID = dialogue
	m.Preferences.NoWait, m.Preferences.TaskOK = true, true
	var group sync.WaitGroup
	defer group.Wait()
	waits, stop := context.WithCancel(ctx)
	defer stop()
	if !c.knowsTasks() {
		group.Go(func() {
			Soon(waits, func() bool { return c.Agents.Job(name) != nil })
			c.Agents.Finish(name)
		})
	}
	late := time.AfterFunc(whatLasts, func() { c.Agents.Finish(name) })
	h = c.Ask(ctx, m, false, nil)
	late.Stop()
	if task := h.Task(); task != nil && do == DoWork { // which the gateway may say before the agent has begun
		Soon(ctx, func() bool { return c.Agents.Job(name).knownTo(c.ledger, task.ID) })
	}
	return name, h
}

// knowsTasks: where the caller stands it can be told that there is a task now.
func (c *Caller) knowsTasks() bool {
	from, to := TraitsOf(c.side, c.form), TraitsOf(c.to, c.List[c.to.Binding].Codec)
	return !from.Toy && !from.Bare && !WithinAINP(from, to) && !WithoutTasks(from, to)
}

// About asks about work.
func (c *Caller) About(ctx context.Context, op canonical.Op, id string) *Received {
	return c.Ask(ctx, c.Request(op, &canonical.TaskQuery{ID: id}), op == canonical.OpTaskSubscribe, nil)
}

// without is what was heard in place of a task.
func (h *Received) without() string {
	if strings.Contains(h.Text(), "worked") {
		return "waited"
	}
	return "no task: " + h.Otherwise()
}

// Until asks how work stands until it has ended.
func (c *Caller) Until(ctx context.Context, id string) *Received {
	for {
		h := c.About(ctx, canonical.OpTaskGet, id)
		if h.Refused() != "" || h.State().Terminal() || ctx.Err() != nil {
			return h
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Caller) gets(ctx context.Context) string {
	name, h := c.Works(ctx, DoWork)
	defer c.Agents.Finish(name)
	if h.Task() == nil {
		return h.without()
	}
	id := h.Task().ID
	if h = c.About(ctx, canonical.OpTaskGet, id); h.Refused() != "" || h.State().Terminal() {
		return h.Otherwise()
	}
	c.Agents.Finish(name)
	h = c.Until(ctx, id)
	if h.State() == canonical.StateCompleted && strings.Contains(h.Text(), "worked") {
		return "working completed"
	}
	return "working " + h.Otherwise()
}

func (c *Caller) lists(ctx context.Context) string {
	name, h := c.Works(ctx, DoWork)
	defer c.Agents.Finish(name)
	if h.Task() == nil {
		return h.without()
	}
	id := h.Task().ID
	h = c.Ask(ctx, c.Request(canonical.OpTaskList, &canonical.TaskFilter{}), false, nil)
	if list, ok := h.last().(*canonical.TaskList); ok {
		for i, task := range list.Tasks {
			if task.ID == id {
				c.notes.listed = strconv.Itoa(i)
				return "listed"
			}
		}
		return "not listed"
	}
	return h.Otherwise()
}

// pages: of two works of one dialogue a list tells one by one, and only if it is
// asked for what goes on.
func (c *Caller) pages(ctx context.Context) string {
	dialogue := string(ect.NewID())
	var ids []string
	for range 2 {
		name, h := c.worksIn(ctx, DoWork, dialogue)
		defer c.Agents.Finish(name)
		if h.Task() == nil {
			return h.without()
		}
		if in := h.Task().ContextID; in != dialogue {
			return "in another dialogue: " + minted.ReplaceAllString(in, "ID")
		}
		ids = append(ids, h.Task().ID)
	}
	slices.Sort(ids)
	var listed []string
	var h *Received
	Soon(ctx, func() bool { // what changes meanwhile goes to the front, and is not on the pages behind
		listed, h = c.listsBy(ctx, canonical.TaskFilter{ContextID: dialogue, Size: 1})
		slices.Sort(listed)
		return h.Refused() != "" || slices.Equal(listed, ids)
	})
	switch {
	case h.Refused() != "":
		return h.Otherwise()
	case !slices.Equal(listed, ids):
		return fmt.Sprintf("%d of 2 are listed", len(listed))
	}
	for state, want := range map[canonical.State]int{canonical.StateWorking: 2, canonical.StateCompleted: 0} {
		if listed, _ = c.listsBy(ctx, canonical.TaskFilter{ContextID: dialogue, State: state}); len(listed) != want {
			return fmt.Sprintf("%d of %d are %s", len(listed), want, state)
		}
	}
	return "paged"
}

// listsBy is the tasks of a list by a filter, read page by page, each no larger than was asked for.
func (c *Caller) listsBy(ctx context.Context, filter canonical.TaskFilter) (ids []string, h *Received) {
	for range 4 {
		h = c.Ask(ctx, c.Request(canonical.OpTaskList, &filter), false, nil)
		list, ok := h.last().(*canonical.TaskList)
		if !ok || filter.Size > 0 && len(list.Tasks) > filter.Size {
			return nil, h
		}
		for _, task := range list.Tasks {
			ids = append(ids, task.ID)
		}
		if list.Next == "" {
			break
		}
		filter.Cursor = list.Next
	}
	return ids, h
}

func (c *Caller) cancels(ctx context.Context) string {
	name, h := c.Works(ctx, DoWork)
	defer c.Agents.Finish(name)
	if h.Task() == nil {
		return h.without()
	}
	id := h.Task().ID
	h = c.About(ctx, canonical.OpTaskCancel, id)
	if _, done := h.last().(*canonical.Done); done {
		h = c.Until(ctx, id)
	}
	if h.State() == canonical.StateCanceled {
		return "canceled"
	}
	return h.Otherwise()
}

func (c *Caller) subscribes(ctx context.Context) string {
	name, h := c.Works(ctx, DoWork)
	defer c.Agents.Finish(name)
	if h.Task() == nil {
		return h.without()
	}
	c.Began = func() { c.Agents.Finish(name) } // and not before
	later := time.AfterFunc(whatLasts, c.Began)
	defer later.Stop()
	h = c.About(ctx, canonical.OpTaskSubscribe, h.Task().ID)
	if h.State() == canonical.StateCompleted && strings.Contains(h.Text(), "worked") {
		return "completed"
	}
	return h.Otherwise()
}

func (c *Caller) results(ctx context.Context) string {
	name, h := c.Works(ctx, DoWork)
	defer c.Agents.Finish(name)
	if h.Task() == nil {
		return h.without()
	}
	later := time.AfterFunc(50*time.Millisecond, func() { c.Agents.Finish(name) })
	defer later.Stop()
	h = c.About(ctx, canonical.OpTaskResult, h.Task().ID)
	if strings.Contains(h.Text(), "worked") {
		return "completed"
	}
	return h.Otherwise()
}

func (c *Caller) answersTask(ctx context.Context) string {
	_, h := c.Works(ctx, DoAsk)
	task := h.Task()
	if task == nil {
		if strings.Contains(h.Text(), "nobody can be asked") {
			return "not asked"
		}
		return h.without()
	}
	id := task.ID
	for questioned := false; !questioned && !task.Status.State.Terminal(); { // once at least, so that what that loses is always lost
		if h = c.About(ctx, canonical.OpTaskGet, id); h.Task() == nil || ctx.Err() != nil {
			return h.Otherwise()
		}
		task = h.Task()
		questioned = len(task.Inputs) > 0 || task.Status.State == canonical.StateInputRequired // and if it does not say what, nobody is told
	}
	if len(task.Inputs) == 0 {
		return "not asked"
	}
	q := &canonical.TaskQuery{ID: id, Answers: []canonical.Answer{accepts(task.Inputs[0])}}
	if h = c.Ask(ctx, c.Request(canonical.OpTaskAnswer, q), false, nil); h.Refused() != "" {
		return h.Otherwise()
	}
	if h = c.Until(ctx, id); strings.Contains(h.Text(), "Hello Ada") {
		return "answered"
	}
	return h.Otherwise()
}
