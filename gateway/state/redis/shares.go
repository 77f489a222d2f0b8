package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// bookkeeping is about what Redis needs for a record beside its bytes: its keys, its
// place in its workflow and in its holder's account.
const bookkeeping = 1280

// Shares of the evidence: while there is space, one holder may have all of it, which is
// 1/partsOfMemory of maxmemory if Redis has such a bound. While the memory of a master is above
// pressedAt, shares are halved every second, down to leastShare; below relievedAt they are doubled
// again. Holders that write lose their oldest records by that; a holder that does not write keeps
// its records until their end.
const (
	partsOfMemory = 4
	leastShare    = 64 << 10
	mostSqueezes  = 12
	pressedAt     = 0.75
	relievedAt    = 0.6
)

// dropLua takes a record out of the account that KEYS are, see accountLua.
const dropLua = `
local function drop(one)
  local ours = tonumber(redis.call('ZSCORE', KEYS[1], one) or 0) >= 4503599627370496
  local size, list = string.match(redis.call('HGET', KEYS[3], one) or '0 ', '^(%d+) (.*)$')
  redis.call('ZREM', KEYS[1], one)
  redis.call('ZREM', KEYS[2], one)
  redis.call('HDEL', KEYS[3], one)
  redis.call('HINCRBY', KEYS[3], 'sum', -tonumber(size))
  if ours then redis.call('HINCRBY', KEYS[3], 'own', -tonumber(size)) end
  return list, ours and '1' or '0'
end
`

// accountLua counts a record for its holder. KEYS the holder's records in the order in
// which they leave, by their ends, and their sizes; ARGV the record, 1 if we signed it
// and else 0, its size, until (ms), the share, its workflow's list or "". What it answers
// after ok left: a record, its workflow's list and 1 if we signed it, in turn, 32 of them at most. The
// oldest of others leave while they take more than an eighth, else the oldest of our own.
const accountLua = clockLua + dropLua + `
local til = tonumber(ARGV[4])
for _, one in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now), 'LIMIT', 0, 32)) do drop(one) end
local had = redis.call('HGET', KEYS[3], ARGV[1])
if had then
  local size, list = string.match(had, '^(%d+) (.*)$')
  if ARGV[6] ~= '' then list = ARGV[6] end
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' ' .. list)
  redis.call('HINCRBY', KEYS[3], 'sum', tonumber(ARGV[3]) - tonumber(size))
  if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0) >= 4503599627370496 then redis.call('HINCRBY', KEYS[3], 'own', tonumber(ARGV[3]) - tonumber(size)) end
else
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' ' .. ARGV[6])
  redis.call('HINCRBY', KEYS[3], 'sum', ARGV[3])
  if ARGV[2] == '1' then redis.call('HINCRBY', KEYS[3], 'own', ARGV[3]) end
  redis.call('ZADD', KEYS[1], string.format('%.0f', tonumber(ARGV[2]) * 4503599627370496 + t[1] * 1000000 + t[2]), ARGV[1])
end
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or tonumber(ends) < til then redis.call('ZADD', KEYS[2], til, ARGV[1]) end
local gone = {'ok'}
while #gone < 96 do
  local sum, own = tonumber(redis.call('HGET', KEYS[3], 'sum')), tonumber(redis.call('HGET', KEYS[3], 'own') or 0)
  if sum <= tonumber(ARGV[5]) then break end
  local first = {}
  if (sum - own) * 8 <= sum then first = redis.call('ZRANGEBYSCORE', KEYS[1], '4503599627370496', '+inf', 'LIMIT', 0, 2) end
  if #first == 0 or #first == 1 and first[1] == ARGV[1] then first = redis.call('ZRANGE', KEYS[1], 0, 1) end
  local one = first[1]
  if one == ARGV[1] then one = first[2] end
  if not one then break end
  local list, ours = drop(one)
  gone[#gone + 1], gone[#gone + 2], gone[#gone + 3] = one, list, ours
end
for i = 1, 3 do lives(KEYS[i], ARGV[4]) end
return gone
`

// unlistLua takes a record out of its workflow: KEYS the list and the standing; ARGV the
// record, and for how long (ms) who began the workflow stays known without one: an hour, as no
// account counts it, and 0 while a master is pressed. It answers ok, or empty and the time (microseconds): no record is left.
const unlistLua = `
redis.call('ZREM', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 1 then return {'ok'} end
local t = redis.call('TIME')
local empty = {'empty', string.format('%.0f', t[1] * 1000000 + t[2])}
if redis.call('HEXISTS', KEYS[2], 'kept') == 0 then return empty end
if ARGV[2] == '0' then redis.call('DEL', KEYS[2]) return empty end
for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
  if field ~= 'kept' and field ~= 'root' and field ~= 'vouch' then redis.call('HDEL', KEYS[2], field) end
end
if redis.call('PTTL', KEYS[2]) > tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
return empty`

// releaseLua takes a record out of a holder's account: KEYS as accountLua; ARGV the record.
const releaseLua = dropLua + `
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then drop(ARGV[1]) end
return {'ok'}
`

// maxRewrites bounds how often a record is put again because others changed it meanwhile.
const maxRewrites = 32

// step is one step of putting a record. What is on hold lasts then: a call leaves upon it.
func (s *Store) step(ctx context.Context, r *ect.Record, c call) (reply []any, err error) {
	run := s.run
	if r.OnHold {
		run = s.lasting
	}
	if reply, err = run(ctx, tokens, s.script(c.lua), c.keys, c.args...); err == nil {
		err = taken(r, reply)
	}
	return reply, err
}

// keep puts the record itself under its key, or apart.
func (s *Store) keep(ctx context.Context, r *ect.Record, put call) (reply []any, apart bool, err error) {
	run := func() { reply, err = s.step(ctx, r, put) }
	if run(); err == nil && word(reply, 0) == "more" {
		apart, put.keys = true, []string{s.apartKey(issuerField(r.Issuer), r.ID)}
		run()
	}
	return reply, apart, err
}

// unite makes a record one with what a reply says is kept of it, which it then takes the
// place of. What no replica vouches for counts for nothing.
func (s *Store) unite(ctx context.Context, r *ect.Record, reply []any) (replaces string, err error) {
	before, replaces := word(reply, 1), word(reply, 2)
	at := stored{who: issuerField(r.Issuer), id: r.ID, compact: r.Compact, about: replaces, holder: before, code: word(reply, 3)}
	records, err := s.appendRecord(ctx, nil, at)
	if err != nil || len(records) == 0 {
		return replaces, err
	}
	if r.Merge(records[0]); r.Holder != records[0].Holder {
		err = s.move(ctx, r, records[0].Holder, len(r.Compact)+len(replaces))
	}
	return replaces, err
}

// move counts a record for its holder, and no more for the one before. The record says
// whose it is only after that, so that what fails in between is done when it is put again.
func (s *Store) move(ctx context.Context, r *ect.Record, before string, size int) error {
	replies, err := s.together(ctx, tokens, s.accounting(r, r.Holder, size))
	if err == nil {
		err = s.discard(ctx, replies[0])
	}
	if err == nil {
		_, err = s.together(ctx, tokens, call{releaseLua, s.holderKeys(before), []any{listed(r)}})
	}
	return err
}

// noteLua lists a record that is apart among those with its id in its workflow. KEYS the
// list; ARGV its issuer, until (ms), most.
const noteLua = clockLua + `
local til = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now))
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if ends and tonumber(ends) >= til or not ends and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return {'ok'} end
redis.call('ZADD', KEYS[1], til, ARGV[1])
lives(KEYS[1], ARGV[2])
return {'ok'}
`

// noting lists a record that is apart. In a cluster that is in another slot, and after
// the record: if it fails, putting the record again repairs it.
func (s *Store) noting(r *ect.Record) call {
	key := s.apartOf(s.workflowKey(r.Workflow), r.ID)
	return call{noteLua, []string{key}, []any{issuerField(r.Issuer), milliseconds(r.Until), ect.MaxNamesakes}}
}

// apartOf is the key of the list of an id in the workflow with a list.
func (s *Store) apartOf(list string, id ect.ID) string {
	return s.config.Prefix + "nw:" + digest(list, string(id)).hex()
}

// appendApart adds to what is found those records that are apart: that of the issuer of
// each reference, and those in its workflow. crowded are the references of which there may be any.
func (s *Store) appendApart(ctx context.Context, found [][]ect.Record, refs []ect.Ref, crowded []int) error {
	listed := map[int]*goredis.StringSliceCmd{}
	_, err := s.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for _, i := range crowded {
			if ref := refs[i]; ref.Workflow != "" {
				listed[i] = p.ZRange(ctx, s.apartOf(s.workflowKey(ref.Workflow), ref.ID), 0, ect.MaxNamesakes-1)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	replies := map[int][]*goredis.MapStringStringCmd{}
	_, err = s.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for _, i := range crowded {
			var issuers []string
			if listed[i] != nil {
				issuers = listed[i].Val()
			}
			if refs[i].Issuer != "" {
				issuers = append(issuers, issuerField(refs[i].Issuer))
			}
			for _, who := range issuers {
				replies[i] = append(replies[i], p.HGetAll(ctx, s.apartKey(who, refs[i].ID)))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, some := range replies {
		for _, reply := range some {
			if found[i], err = s.appendAll(ctx, found[i], refs[i].ID, reply.Val()); err != nil {
				return err
			}
		}
	}
	return nil
}

// readApart reads what is not under the key of its id once more, where it is if it came
// when many others had the id. Else it has left.
func (s *Store) readApart(ctx context.Context, members []goredis.Z, found []*goredis.SliceCmd) error {
	_, err := s.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, one := range members {
			if word(found[i].Val(), 1) != "" {
				continue
			}
			name, _ := one.Member.(string)
			who, id, _ := strings.Cut(name, " ")
			found[i] = p.HMGet(ctx, s.apartKey(who, ect.ID(id)), fieldsOf(who)...)
		}
		return nil
	})
	return err
}

// call is a script with its keys and arguments.
type call struct {
	lua  string
	keys []string
	args []any
}

// accounting counts a record for its holder; one on hold leaves the account where it was before.
func (s *Store) accounting(r *ect.Record, holder string, size int) call {
	if r.OnHold {
		return call{releaseLua, s.holderKeys(holder), []any{listed(r)}}
	}
	list := ""
	if r.Workflow != "" {
		list = s.workflowKey(r.Workflow)
	}
	return call{accountLua, s.holderKeys(holder), []any{
		listed(r), r.Own, size + bookkeeping, milliseconds(r.Until), s.share(), list,
	}}
}

// share is how many bytes one holder may have now.
func (s *Store) share() int64 { return max(s.evidence()>>s.pressure.squeezes.Load(), leastShare) }

// evidence is how many bytes of evidence there may be.
func (s *Store) evidence() int64 {
	if space := s.pressure.memory.Load(); space > 0 {
		return min(s.config.Bounds.MaxTokenBytes, space/partsOfMemory)
	}
	return s.config.Bounds.MaxTokenBytes
}

// shrinkShares notes how full the masters are.
func (s *Store) shrinkShares(space int64, fullest float64) {
	s.pressure.memory.Store(space)
	switch n := s.pressure.squeezes.Load(); {
	case fullest > pressedAt && n < mostSqueezes:
		s.pressure.squeezes.Store(n + 1)
	case fullest < relievedAt && n > 0:
		s.pressure.squeezes.Store(n - 1)
	}
}

// together runs scripts in one round trip, and again by themselves if a server does not
// know them yet.
func (s *Store) together(ctx context.Context, what string, calls ...call) ([][]any, error) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	commands := make([]*goredis.Cmd, len(calls))
	_, _ = s.client.Pipelined(bounded, func(p goredis.Pipeliner) error { // each command has its own error
		for i, c := range calls {
			commands[i] = s.script(c.lua).EvalSha(bounded, p, c.keys, c.args...)
		}
		return nil
	})
	replies := make([][]any, len(calls))
	for i, c := range calls {
		reply, err := commands[i].Slice()
		if err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") {
			reply, err = s.script(c.lua).Run(bounded, s.client, c.keys, c.args...).Slice()
		}
		if err != nil {
			return nil, failure(ctx, what, err)
		}
		replies[i] = reply
	}
	return replies, nil
}

// discard deletes the records that left a holder's account. What stays behind when that
// fails is found until it ends, and counts for no holder.
func (s *Store) discard(ctx context.Context, gone []any) error {
	if len(gone) < 4 {
		return nil
	}
	life := time.Hour.Milliseconds()
	if s.pressure.squeezes.Load() > 0 {
		life = 0
	}
	for i := 3; i < len(gone); i += 3 {
		s.evicted(word(gone, i) == "1")
	}
	unlisted := map[string]*goredis.Cmd{}
	return s.within(ctx, tokens, func(bounded context.Context) error {
		_, err := s.client.Pipelined(bounded, func(p goredis.Pipeliner) error {
			for i := 1; i+2 < len(gone); i += 3 {
				one, list := word(gone, i), word(gone, i+1)
				who, id, _ := strings.Cut(one, " ")
				p.HDel(bounded, s.tokenKey(ect.ID(id)), who+":compact", who+":about", who+":until", who+":holder", who+":mac")
				p.Del(bounded, s.apartKey(who, ect.ID(id)))
				if list != "" {
					p.ZRem(bounded, s.apartOf(list, ect.ID(id)), who)
					unlisted[list] = p.Eval(bounded, unlistLua, []string{list, s.standingOf(list)}, one, life) // the last of a list counts
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return s.unnote(bounded, unlisted)
	})
}

// taken is why a step did not take a record; nil: it did.
func taken(r *ect.Record, reply []any) error {
	switch word(reply, 0) {
	case "conflict":
		return &ect.ConflictError{ID: r.ID}
	case "foreign":
		return &ect.ForeignRootError{ID: r.ID}
	default:
		return nil
	}
}

// rootOf is the root of a workflow that a record begins.
func rootOf(r *ect.Record) string {
	if r.IsRoot() {
		return issuerField(r.Issuer)
	}
	return noRoot
}

// listed is the name of a record in lists.
func listed(r *ect.Record) string { return issuerField(r.Issuer) + " " + string(r.ID) }

func (s *Store) holderKeys(holder string) []string {
	tag := "{" + digest(holder).hex() + "}"
	return []string{s.config.Prefix + "ho:" + tag, s.config.Prefix + "hx:" + tag, s.config.Prefix + "hs:" + tag}
}

// memoryOf is what a master may use, and how much of that it does; 0: there is no bound.
func memoryOf(info map[string]string) (space int64, part float64) {
	space, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
	if space <= 0 {
		return 0, 0
	}
	return space, float64(used) / float64(space)
}

// What is on hold of one holder takes at most 1/partOfHold of the evidence, and that of all 1/partOfHolds, as
// in the other drivers. While a master is pressed, a hold more has to fit half of the share of its holder, too.
// What is on hold is on no other account: so no other record of its holder evicts it, and no share that becomes
// smaller. It leaves at its end.
const (
	partOfHold  = 8
	partOfHolds = 2
	partOfShare = 2
)

// holdLua counts a record on hold. KEYS when each ends, and what each takes; ARGV the record, its size, until
// (ms), the bound in bytes. It answers ok, had if it was counted, or full.
const holdLua = clockLua + `
for _, one in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now), 'LIMIT', 0, 1000)) do
  redis.call('HINCRBY', KEYS[2], 'sum', -tonumber(redis.call('HGET', KEYS[2], one) or 0))
  redis.call('HDEL', KEYS[2], one)
  redis.call('ZREM', KEYS[1], one)
end
local had = redis.call('HGET', KEYS[2], ARGV[1])
if not had and tonumber(redis.call('HGET', KEYS[2], 'sum') or 0) + tonumber(ARGV[2]) > tonumber(ARGV[4]) then return {'full'} end
redis.call('HINCRBY', KEYS[2], 'sum', tonumber(ARGV[2]) - tonumber(had or 0))
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) < tonumber(ARGV[3]) then redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1]) end
lives(KEYS[1], ARGV[3])
lives(KEYS[2], ARGV[3])
return {had and 'had' or 'ok'}
`

// unholdLua takes a record from an account of holdLua. KEYS as there; ARGV the record.
const unholdLua = `
redis.call('HINCRBY', KEYS[2], 'sum', -tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0))
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return {'ok'}
`

// hold counts a record on hold for its holder and for all before it is put, or else is a [state.FullError]. undo
// takes back what was not counted before. Where neither the put nor undo is reached, it counts until its end,
// and counts once when the record is put again.
func (s *Store) hold(ctx context.Context, r *ect.Record, size int) (undo func(), err error) {
	var counted [][]string
	undo = func() {
		for _, keys := range counted {
			_, _ = s.run(context.WithoutCancel(ctx), tokens, s.script(unholdLua), keys, listed(r)) // else it counts until its end
		}
	}
	for _, account := range []struct {
		name  string
		bound int64
		own   bool
	}{
		{digest(r.Holder).hex(), min(s.evidence()/partOfHold, s.share()/partOfShare), true},
		{"all", s.evidence() / partOfHolds, false},
	} {
		tag := "{" + account.name + "}"
		keys := []string{s.config.Prefix + "hh:" + tag, s.config.Prefix + "hb:" + tag}
		reply, err := s.run(ctx, tokens, s.script(holdLua), keys, listed(r), size+bookkeeping, milliseconds(r.Until), account.bound)
		switch {
		case err != nil:
			undo()
			return nil, err
		case word(reply, 0) == "full":
			undo()
			return nil, state.HoldError(account.own)
		case word(reply, 0) == "ok":
			counted = append(counted, keys)
		}
	}
	return undo, nil
}

// putOnHold counts a record on hold, and puts it. What is certainly not kept so is not counted either.
func (s *Store) putOnHold(ctx context.Context, r *ect.Record, put call, size int) (existing []any, err error) {
	undo, err := s.hold(ctx, r, len(r.Compact)+size)
	if err != nil {
		return nil, err
	}
	existing, err = s.putInSteps(ctx, r, put, size)
	if word(existing, 0) == "held" || errors.As(err, new(*ect.ConflictError)) || errors.As(err, new(*ect.ForeignRootError)) {
		undo()
	}
	return existing, err
}
