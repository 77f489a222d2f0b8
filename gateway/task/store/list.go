package store

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	defaultPage = 50 // A2A 1.0, ListTasksRequest.page_size
	maxPage     = 100
)

// Item is a task on a list.
type Item struct {
	ID      string
	Changed time.Time // by which lists are ordered: the last change comes first (A2A 1.0, ListTasks)

	record *Record // nil: it is kept like a reply
}

func (i Item) compare(other Item) int {
	return cmp.Or(other.Changed.Compare(i.Changed), strings.Compare(i.ID, other.ID))
}

// Cursor names the place behind a task, which stays where it is when other tasks come and
// go.
func (i Item) Cursor() string { return strconv.FormatInt(i.Changed.UnixNano(), 36) + "." + i.ID }

func parseCursor(text string) (after Item, ok bool) {
	at, id, found := strings.Cut(text, ".")
	nanos, err := strconv.ParseInt(at, 36, 64)
	return Item{ID: id, Changed: time.Unix(0, nanos)}, found && err == nil
}

// Page is a part of a list.
type Page struct {
	Items []Item
	More  bool // there are tasks behind it
	Size  int  // how many tasks it may have
	Total int  // of the whole list
}

// collector holds the first tasks of a page, one more than the page has.
type collector struct {
	filter   *canonical.TaskFilter
	dialogue string // the agent's name of the dialogue that the filter names as its caller does
	after    *Item  // nil: from the beginning
	page     Page
	seen     map[string]bool
}

func (c *collector) add(one Item, dialogue string, state canonical.State) {
	f := c.filter
	if f.ContextID != "" && dialogue != f.ContextID && dialogue != c.dialogue || f.State != "" && state != f.State ||
		!f.After.IsZero() && !one.Changed.After(f.After) || c.seen[one.ID] {
		return
	}
	c.seen[one.ID] = true
	c.page.Total++
	if c.after != nil && c.after.compare(one) >= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(c.page.Items, one, Item.compare)
	if c.page.Items = slices.Insert(c.page.Items, at, one); len(c.page.Items) > c.page.Size+1 {
		c.page.Items = c.page.Items[:c.page.Size+1]
	}
}

// List is a page of the tasks of a group: those that go on, and those that ended with
// their first reply, for as long as they can be asked for. dialogue is the agent's name of
// the dialogue in the filter. Its error is CodeBadParams for a cursor that no page gave,
// or a *[problem.RecordingError].
func (s *Store) List(ctx context.Context, group, dialogue string, f *canonical.TaskFilter) (Page, error) {
	c := &collector{filter: f, dialogue: dialogue, seen: map[string]bool{}, page: Page{Size: cmp.Or(min(maxPage, max(f.Size, 0)), defaultPage)}}
	if f.Cursor != "" {
		after, ok := parseCursor(f.Cursor)
		if !ok {
			return Page{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "no such page"}
		}
		c.after = &after
	}
	if err := s.collect(ctx, group, c); err != nil {
		return Page{}, &problem.RecordingError{Err: err}
	}
	if c.page.More = len(c.page.Items) > c.page.Size; c.page.More {
		c.page.Items = c.page.Items[:c.page.Size]
	}
	return c.page, nil
}

func (s *Store) collect(ctx context.Context, group string, c *collector) error {
	for after := ""; ; {
		entries, err := s.deps.Entries.List(ctx, KindTask, group, after, maxPage)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			after = entry.Key.ID
			if rec, err := read(entry); err == nil {
				c.add(Item{ID: entry.Key.ID, Changed: rec.Changed, record: rec}, rec.Task.ContextID, rec.Task.Status.State)
			}
		}
		if len(entries) < maxPage {
			break
		}
	}
	return s.visitEnded(ctx, group, func(t endedTask) { c.add(Item{ID: t.ID, Changed: t.At}, t.Context, t.State) })
}

// LoadItem is the record of a task on a list; nil: it is gone.
func (s *Store) LoadItem(ctx context.Context, group string, one Item) *Record {
	if one.record != nil {
		return one.record
	}
	return s.LoadEnded(ctx, EntryKey{Kind: KindTask, Group: group, ID: one.ID})
}
