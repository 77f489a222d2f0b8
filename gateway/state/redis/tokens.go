package redis

import (
	"context"
	"encoding/json"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// maxWorkflow bounds how many ECTs of one workflow are listed: the latest.
const maxWorkflow = 1 << 14

// putLua: KEYS token; ARGV compact, about, until (ms). The same bytes may be
// prolonged, others are refused.
const putLua = `
local known = redis.call('HMGET', KEYS[1], 'compact', 'until')
if known[1] and known[1] ~= ARGV[1] then return {'conflict'} end
if known[1] and tonumber(known[2]) >= tonumber(ARGV[3]) then return {'ok'} end
redis.call('HSET', KEYS[1], 'compact', ARGV[1], 'about', ARGV[2], 'until', ARGV[3])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return {'ok'}
`

// listLua: KEYS workflow; ARGV id, until (ms), most. Ids stand in the order in
// which they came; the list lives as long as the last of them.
const listLua = `
local t = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', t[1] * 1000000 + t[2]), ARGV[1])
local over = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[3])
if over > 0 then redis.call('ZPOPMIN', KEYS[1], over) end
local left = redis.call('PTTL', KEYS[1])
if left < 0 or left < tonumber(ARGV[2]) - (t[1] * 1000 + math.floor(t[2] / 1000)) then
  redis.call('PEXPIREAT', KEYS[1], ARGV[2])
end
return {'ok'}
`

// about is a record beside its compact form.
type about struct {
	ID       ect.ID       `json:"id"`
	Workflow string       `json:"wid"`
	Issuer   ect.Identity `json:"iss"`
	Audience []string     `json:"aud"`
	Act      ect.Act      `json:"act"`
	Parents  []ect.ID     `json:"par"`
	Until    time.Time    `json:"until"`
}

// Put keeps a record, as [state.Tokens.Put] does.
func (s *Store) Put(ctx context.Context, r ect.Record) error {
	text, err := json.Marshal(about{r.ID, r.Workflow, r.Issuer, r.Audience, r.Act, r.Parents, r.Until})
	if err != nil {
		return &state.FullError{What: "an execution context token"}
	}
	until := milliseconds(r.Until)
	reply, err := s.run(ctx, "execution context tokens", script(putLua), []string{s.tokenKey(r.ID)}, r.Compact, text, until)
	switch {
	case err != nil:
		return err
	case word(reply, 0) == "conflict":
		return &ect.ConflictError{ID: r.ID}
	case r.Workflow == "":
		return nil
	}
	_, err = s.run(ctx, "execution context tokens", script(listLua), []string{s.workflowKey(r.Workflow)}, string(r.ID), until, maxWorkflow)
	return err
}

// Get finds a record by id.
func (s *Store) Get(ctx context.Context, id ect.ID) (ect.Record, bool, error) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return ect.Record{}, false, err
	}
	defer cancel()
	fields, err := s.client.HMGet(bounded, s.tokenKey(id), "compact", "about").Result()
	if err != nil {
		return ect.Record{}, false, failure(ctx, "", err)
	}
	return recordOf(fields)
}

// Workflow lists the records of a workflow in the order in which they came, the
// latest maxWorkflow of them.
func (s *Store) Workflow(ctx context.Context, wid string) ([]ect.Record, error) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil || wid == "" {
		return nil, err
	}
	defer cancel()
	ids, err := s.client.ZRange(bounded, s.workflowKey(wid), 0, -1).Result()
	if err != nil {
		return nil, failure(ctx, "", err)
	}
	found := make([]*goredis.SliceCmd, len(ids))
	_, err = s.client.Pipelined(bounded, func(p goredis.Pipeliner) error {
		for i, id := range ids {
			found[i] = p.HMGet(bounded, s.tokenKey(ect.ID(id)), "compact", "about")
		}
		return nil
	})
	if err != nil {
		return nil, failure(ctx, "", err)
	}
	var records []ect.Record
	for _, one := range found {
		if r, ok, err := recordOf(one.Val()); err != nil {
			return nil, err
		} else if ok {
			records = append(records, r)
		}
	}
	return records, nil
}

func recordOf(fields []any) (ect.Record, bool, error) {
	text := word(fields, 1)
	if text == "" {
		return ect.Record{}, false, nil
	}
	var a about
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return ect.Record{}, false, unavailable(errReply)
	}
	return ect.Record{
		Compact: word(fields, 0), ID: a.ID, Workflow: a.Workflow, Issuer: a.Issuer, Audience: a.Audience,
		Act: a.Act, Parents: a.Parents, Until: a.Until,
	}, true, nil
}

func (s *Store) tokenKey(id ect.ID) string { return s.config.Prefix + "t:" + digest(string(id)).hex() }

func (s *Store) workflowKey(wid string) string { return s.config.Prefix + "w:" + digest(wid).hex() }
