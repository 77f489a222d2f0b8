package redis

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// maxWorkflow bounds how many ECTs of one workflow are listed: the latest.
const maxWorkflow = 1 << 14

// putLua: KEYS id; ARGV issuer, compact, about, until (ms), most. The same bytes
// may be prolonged, others of the same issuer are refused; other issuers' tokens
// with the id stand beside it, as fields of their own, until the last has ended.
const putLua = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local who, til = ARGV[1], tonumber(ARGV[4])
local known = redis.call('HMGET', KEYS[1], who .. ':compact', who .. ':until')
if known[1] and tonumber(known[2]) >= now then
  if known[1] ~= ARGV[2] then return {'conflict'} end
  if tonumber(known[2]) >= til then return {'ok'} end
end
if not known[1] and redis.call('HLEN', KEYS[1]) >= 3 * tonumber(ARGV[5]) then
  local all, left = redis.call('HGETALL', KEYS[1]), 0
  for i = 1, #all, 2 do
    local other = string.match(all[i], '^(%x+):until$')
    if other and tonumber(all[i + 1]) >= now then
      left = left + 1
    elseif other then
      redis.call('HDEL', KEYS[1], other .. ':compact', other .. ':about', other .. ':until')
    end
  end
  if left >= tonumber(ARGV[5]) then return {'conflict'} end
end
redis.call('HSET', KEYS[1], who .. ':compact', ARGV[2], who .. ':about', ARGV[3], who .. ':until', ARGV[4])
local life = redis.call('PTTL', KEYS[1])
if life < 0 or life < til - now then redis.call('PEXPIREAT', KEYS[1], ARGV[4]) end
return {'ok'}
`

// listLua: KEYS workflow; ARGV id and issuer, until (ms), most. Ids stand in the order in
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
	who := issuerField(r.Issuer)
	reply, err := s.run(ctx, "execution context tokens", script(putLua), []string{s.tokenKey(r.ID)},
		who, r.Compact, text, until, ect.MaxNamesakes)
	switch {
	case err != nil:
		return err
	case word(reply, 0) == "conflict":
		return &ect.ConflictError{ID: r.ID}
	case r.Workflow == "":
		return nil
	}
	_, err = s.run(ctx, "execution context tokens", script(listLua), []string{s.workflowKey(r.Workflow)}, who+" "+string(r.ID), until, maxWorkflow)
	return err
}

// Get finds the records with an id, one of each issuer that used it.
func (s *Store) Get(ctx context.Context, id ect.ID) ([]ect.Record, error) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	fields, err := s.client.HGetAll(bounded, s.tokenKey(id)).Result()
	if err != nil {
		return nil, failure(ctx, "", err)
	}
	var records []ect.Record
	for name, compact := range fields {
		who, ok := strings.CutSuffix(name, ":compact")
		if !ok {
			continue
		}
		if records, err = s.appendRecord(records, compact, fields[who+":about"]); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// Workflow lists the records of a workflow in the order in which they came, the
// latest maxWorkflow of them.
func (s *Store) Workflow(ctx context.Context, wid string) ([]ect.Record, error) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil || wid == "" {
		return nil, err
	}
	defer cancel()
	members, err := s.client.ZRange(bounded, s.workflowKey(wid), 0, -1).Result()
	if err != nil {
		return nil, failure(ctx, "", err)
	}
	found := make([]*goredis.SliceCmd, len(members))
	_, err = s.client.Pipelined(bounded, func(p goredis.Pipeliner) error {
		for i, member := range members {
			who, id, _ := strings.Cut(member, " ")
			found[i] = p.HMGet(bounded, s.tokenKey(ect.ID(id)), who+":compact", who+":about")
		}
		return nil
	})
	if err != nil {
		return nil, failure(ctx, "", err)
	}
	var records []ect.Record
	for _, one := range found {
		if records, err = s.appendRecord(records, word(one.Val(), 0), word(one.Val(), 1)); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// appendRecord adds a record that is there, and has not ended: it may stand
// beside one that lives longer.
func (s *Store) appendRecord(records []ect.Record, compact, text string) ([]ect.Record, error) {
	if text == "" {
		return records, nil
	}
	var a about
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, unavailable(errReply)
	}
	if a.Until.Before(s.now()) {
		return records, nil
	}
	return append(records, ect.Record{
		Compact: compact, ID: a.ID, Workflow: a.Workflow, Issuer: a.Issuer, Audience: a.Audience,
		Act: a.Act, Parents: a.Parents, Until: a.Until,
	}), nil
}

// issuerField begins the names of an issuer's fields.
func issuerField(issuer ect.Identity) string { return digest(string(issuer)).hex() }

func (s *Store) tokenKey(id ect.ID) string { return s.config.Prefix + "t:" + digest(string(id)).hex() }

func (s *Store) workflowKey(wid string) string { return s.config.Prefix + "w:" + digest(wid).hex() }
