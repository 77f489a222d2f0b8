package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// parts is how many parts the list of workflows has. In a cluster each has a slot of its own, so that not all
// records are noted at one master.
const parts = 16

// unnoteLua takes a workflow out of its part of the list, whose KEYS are as those of noteWorkflowLua.
const unnoteLua = `
local function unnote(one)
  redis.call('ZREM', KEYS[1], one)
  redis.call('ZREM', KEYS[2], one)
  redis.call('HDEL', KEYS[3], one)
end
`

// noteWorkflowLua notes that a workflow got a record. KEYS a part of the list of workflows: when each got its last
// record (microseconds), when the last of its records ends (ms), and its id; ARGV the digest of the id, the id, until
// (ms). No two came at once. Some that have ended leave.
const noteWorkflowLua = clockLua + unnoteLua + `
for _, one in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now), 'LIMIT', 0, 8)) do unnote(one) end
local at = t[1] * 1000000 + t[2]
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] and tonumber(last[2]) >= at then at = tonumber(last[2]) + 1 end
redis.call('ZADD', KEYS[1], string.format('%.0f', at), ARGV[1])
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or tonumber(ends) < tonumber(ARGV[3]) then redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1]) end
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
for i = 1, 3 do lives(KEYS[i], ARGV[3]) end
return {'ok'}
`

// leaveLua takes a workflow from the list that had no record at a time. KEYS as noteWorkflowLua; ARGV the digest of its
// id, the time (microseconds).
const leaveLua = unnoteLua + `
local last = redis.call('ZSCORE', KEYS[1], ARGV[1])
if last and tonumber(last) <= tonumber(ARGV[2]) then unnote(ARGV[1]) end
return {'ok'}
`

// pageLua reads a part of the list. KEYS as noteWorkflowLua; ARGV from when on (microseconds), how many at most. It answers
// the digest of an id, when the workflow got its last record, and the id, in turn.
const pageLua = `
local found, page = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2]), {}
for i = 1, #found, 2 do
  page[#page + 1], page[#page + 2], page[#page + 3] = found[i], found[i + 1], redis.call('HGET', KEYS[3], found[i]) or ''
end
return page
`

// partKeys are the keys of the part of the list that a workflow is in, by the digest of its id or the number of the part.
func (s *Store) partKeys(digest string) []string {
	tag := "{wids" + digest[:1] + "}"
	return []string{s.config.Prefix + "wl:" + tag, s.config.Prefix + "we:" + tag, s.config.Prefix + "wn:" + tag}
}

// noted notes that a record came into its workflow.
func (s *Store) noted(r *ect.Record) call {
	member := digest(r.Workflow).hex()
	return call{noteWorkflowLua, s.partKeys(member), []any{member, r.Workflow, milliseconds(r.Until)}}
}

// unnote takes workflows from the list that lost their last record, by the keys of their lists and what unlistLua
// answered. What is left when that fails leaves at its end.
func (s *Store) unnote(bounded context.Context, unlisted map[string]*goredis.Cmd) error {
	_, err := s.client.Pipelined(bounded, func(p goredis.Pipeliner) error {
		for list, cmd := range unlisted {
			if reply, _ := cmd.Slice(); word(reply, 0) == "empty" {
				member := strings.TrimPrefix(list, s.workflowKeyOf(""))
				p.Eval(bounded, leaveLua, s.partKeys(member), member, word(reply, 1))
			}
		}
		return nil
	})
	return err
}

// Workflows lists the workflows with a record whose last record came at or after since, by the clock of Redis. They come
// in parts, and in each in the order of their last records: one that gets a record meanwhile comes once more. A
// cursor is the part and when the last one got its record.
func (s *Store) Workflows(ctx context.Context, since time.Time, after string, limit int) (wids []string, next string, err error) {
	defer lacks(&err, state.LacksReading)
	at, err := cursorOf(after, max(since.UnixMicro(), 0))
	if err != nil {
		return nil, "", err
	}
	for left := min(max(limit, 1), ect.MaxListed); at.part < parts; {
		page, err := s.run(ctx, "", s.script(pageLua), s.partKeys(strconv.FormatInt(at.part, parts)), at.from, left)
		if err != nil {
			return nil, "", err
		}
		some, err := s.living(ctx, page)
		if err != nil {
			return nil, "", err
		}
		wids = append(wids, some...)
		if left -= len(page) / pageFields; left > 0 {
			at = position{part: at.part + 1, from: strconv.FormatInt(max(since.UnixMicro(), 0), 10)}
			continue
		}
		last, _ := strconv.ParseFloat(word(page, len(page)-2), 64)
		return wids, fmt.Sprintf("%x.%.0f", at.part, last), nil
	}
	return wids, "", nil
}

// pageFields is how many words pageLua answers for each workflow.
const pageFields = 3

// living are the workflows of an answer of pageLua of which a record is kept.
func (s *Store) living(ctx context.Context, page []any) (wids []string, err error) {
	lists := make([]*goredis.IntCmd, len(page)/pageFields)
	if len(lists) == 0 {
		return nil, nil
	}
	err = s.within(ctx, "", func(bounded context.Context) error {
		_, err := s.client.Pipelined(bounded, func(p goredis.Pipeliner) error {
			for i := range lists {
				lists[i] = p.Exists(bounded, s.workflowKeyOf(word(page, pageFields*i)))
			}
			return nil
		})
		return err
	})
	for i, list := range lists {
		wid := word(page, pageFields*i+2)
		if err == nil && list.Val() == 1 && digest(wid).hex() == word(page, pageFields*i) {
			wids = append(wids, wid)
		}
	}
	return wids, err
}

// position is where a list of workflows goes on.
type position struct {
	part int64
	from string // as ZRANGEBYSCORE has it
}

// cursorOf reads a cursor; empty: the first part from since (microseconds) on.
func cursorOf(after string, since int64) (position, error) {
	if after == "" {
		return position{from: strconv.FormatInt(since, 10)}, nil
	}
	part, score, _ := strings.Cut(after, ".")
	n, partErr := strconv.ParseUint(part, parts, 4)
	last, scoreErr := strconv.ParseUint(score, 10, 53)
	if partErr != nil || scoreErr != nil {
		return position{}, ect.ErrCursor
	}
	return position{int64(n), "(" + strconv.FormatUint(last, 10)}, nil
}
