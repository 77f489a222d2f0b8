package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// maxWorkflow bounds how many ECTs of one workflow are listed: the latest.
const maxWorkflow = 1 << 14

// putLua: KEYS id; ARGV issuer, compact, about, until (ms), most, holder, code, 1 if we
// signed it or else "", the about that this one takes the place of or "". If the same bytes
// are there with another about or holder than either it answers held, and what is there.
// Other bytes of the same issuer are refused; other issuers' tokens
// with the id stand beside it, as fields of their own, until the last has ended. Beyond
// most of them it answers more: the record belongs under a key of its own, and so does
// each further one while any of these may live, so that no issuer has two.
const putLua = clockLua + `
local who = ARGV[1]
local known = redis.call('HMGET', KEYS[1], who .. ':compact', who .. ':until', who .. ':holder', who .. ':about', who .. ':mac')
if known[1] and tonumber(known[2]) >= now then
  if known[1] ~= ARGV[2] then return {'conflict'} end
  if known[4] == ARGV[3] and known[3] == ARGV[6] and known[5] == ARGV[7] then return {'ok'} end
  if (known[4] or '') ~= ARGV[9] then return {'held', known[3] or '', known[4] or '', known[5] or ''} end
end
local more = not known[1] and ARGV[8] == '' and redis.call('HEXISTS', KEYS[1], 'more') == 1
if not known[1] and ARGV[8] == '' and not more and redis.call('HLEN', KEYS[1]) >= 3 * tonumber(ARGV[5]) then
  local all, left = redis.call('HGETALL', KEYS[1]), 0
  for i = 1, #all, 2 do
    local other = string.match(all[i], '^(%x+):until$')
    if other and tonumber(all[i + 1]) >= now then
      left = left + 1
    elseif other then
      redis.call('HDEL', KEYS[1], other .. ':compact', other .. ':about', other .. ':until', other .. ':holder', other .. ':mac')
    end
  end
  more = left >= tonumber(ARGV[5])
end
if more then
  redis.call('HSET', KEYS[1], 'more', '1')
else
  redis.call('HSET', KEYS[1], who .. ':compact', ARGV[2], who .. ':about', ARGV[3], who .. ':until', ARGV[4], who .. ':holder', ARGV[6], who .. ':mac', ARGV[7])
end
lives(KEYS[1], ARGV[4])
if more then return {'more'} end
return {'ok'}
`

// beginLua comes before a record is put that would begin its workflow. KEYS workflow's standing and list; ARGV the root,
// how long it is held (ms), its code. Of two roots at once in a new workflow one has it; it is held
// until listLua says that the record is kept, and then for as long as any record.
const beginLua = `
local root = redis.call('HGET', KEYS[1], 'root')
if root and root ~= ARGV[1] then return {'foreign'} end
if not root then
  if redis.call('EXISTS', KEYS[2]) == 1 then return {'foreign'} end
  redis.call('HSET', KEYS[1], 'root', ARGV[1], 'vouch', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {'ok'}
`

// listLua comes after a record is put. KEYS workflow's list and standing; ARGV id and
// issuer, until (ms), most, the root if it is the first record, "" or 1 if it
// would begin the workflow, most members, the root's code, then members, each with its code. Ids stand in the order in which they came,
// no two under one number. Both keys live as long as the last of the records.
const listLua = clockLua + `
local til = tonumber(ARGV[2])
local root = redis.call('HGET', KEYS[2], 'root')
if ARGV[5] ~= '' and root and root ~= ARGV[4] then return {'foreign'} end
if not root then redis.call('HSET', KEYS[2], 'root', ARGV[4], 'vouch', ARGV[7]) end
local life = redis.call('PTTL', KEYS[2])
if redis.call('HSETNX', KEYS[2], 'kept', '1') == 1 or life < til - now then redis.call('PEXPIREAT', KEYS[2], ARGV[2]) end
local many = redis.call('HLEN', KEYS[2]) - 3
for i = 8, #ARGV, 2 do
  if many < tonumber(ARGV[6]) or redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then
    many = many + redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local at = t[1] * 1000000 + t[2]
if last[2] and tonumber(last[2]) >= at then at = tonumber(last[2]) + 1 end
redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', at), ARGV[1])
local over = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[3])
if over > 0 then redis.call('ZPOPMIN', KEYS[1], over) end
lives(KEYS[1], ARGV[2])
return {'ok'}
`

// heldFor is how long a root has its workflow before its record is listed: longer than
// any operation may take.
const heldFor = time.Minute

// noRoot stands where the first record of a workflow was no root.
const noRoot = "none"

// about is a record beside its compact form.
type about struct {
	ID       ect.ID       `json:"id"`
	Workflow string       `json:"wid"`
	Issuer   ect.Identity `json:"iss"`
	Audience []string     `json:"aud"`
	Act      ect.Act      `json:"act"`
	Parents  []ect.ID     `json:"par"`
	Until    time.Time    `json:"until"`

	Own     bool           `json:"own,omitempty"`
	Holder  string         `json:"holder,omitempty"`
	Members []ect.Identity `json:"members,omitempty"`
	OnHold  bool           `json:"hold,omitempty"`
}

// Put keeps a record, as [state.Tokens.Put] does. In a cluster, what it says of its
// workflow is noted in another slot than the record, and after it: if the second step
// fails the record makes no member, and putting it again repairs that. A root has its
// workflow before either, and loses it soon when nothing follows.
func (s *Store) Put(ctx context.Context, r ect.Record) (err error) {
	defer lacks(&err, state.LacksRecording)
	replaces := ""
	for range maxRewrites {
		reply, err := s.putOnce(ctx, &r, replaces)
		if err != nil {
			return err
		}
		if word(reply, 0) != "held" {
			return nil
		}
		if replaces, err = s.unite(ctx, &r, reply); err != nil {
			return err
		}
	}
	return unavailable(errBusy)
}

// putOnce puts a record in the place of what is kept of it, and answers what is kept if
// that is something else.
func (s *Store) putOnce(ctx context.Context, r *ect.Record, replaces string) (existing []any, err error) {
	text, err := json.Marshal(about{r.ID, r.Workflow, r.Issuer, r.Audience, r.Act, r.Parents, r.Until, r.Own, r.Holder, r.Members, r.OnHold})
	if err != nil {
		return nil, &state.FullError{What: "an execution context token"}
	}
	put := s.putting(r, text, replaces)
	if r.OnHold {
		return s.putOnHold(ctx, r, put, len(text))
	}
	if !s.sharded() && r.Workflow != "" {
		if saved, done, err := s.putAtOnce(ctx, r, put, len(text)); done || err != nil {
			return saved, err
		}
	}
	return s.putInSteps(ctx, r, put, len(text))
}

// putInSteps puts a record, and notes after that what it says of its workflow.
func (s *Store) putInSteps(ctx context.Context, r *ect.Record, put call, size int) (existing []any, err error) {
	if r.IsRoot() || r.Begins {
		if _, err := s.step(ctx, r, s.beginning(r)); err != nil {
			return nil, err
		}
	}
	reply, apart, err := s.keep(ctx, r, put)
	if err != nil || word(reply, 0) == "held" {
		return reply, err
	}
	calls := []call{s.accounting(r, r.Holder, len(r.Compact)+size)}
	if r.OnHold && r.Workflow != "" {
		if _, err := s.step(ctx, r, s.listing(r)); err != nil { // once more it does nothing
			return nil, err
		}
	}
	if r.Workflow != "" {
		if calls = append(calls, s.listing(r), s.noted(r)); apart {
			calls = append(calls, s.noting(r))
		}
	}
	replies, err := s.together(ctx, tokens, calls...)
	if err != nil {
		return nil, err
	}
	if r.Workflow != "" {
		if err := taken(r, replies[1]); err != nil {
			return nil, err
		}
	}
	return nil, s.discard(ctx, replies[0])
}

// tokens is what errors call the records.
const tokens = "execution context tokens"

// putAtOnce does all that putInSteps does in one step, where one server has all keys.
// False: too many others have the record's id.
func (s *Store) putAtOnce(ctx context.Context, r *ect.Record, put call, size int) (existing []any, done bool, err error) {
	lua, steps := recordLua, []call{put, s.accounting(r, r.Holder, len(r.Compact)+size), s.listing(r), s.noted(r)}
	if r.IsRoot() || r.Begins {
		lua, steps = rootLua, append([]call{s.beginning(r)}, steps...)
	}
	var keys []string
	var args, counts []any
	for _, step := range steps {
		keys, args, counts = append(keys, step.keys...), append(args, step.args...), append(counts, len(step.keys), len(step.args))
	}
	replies, err := s.run(ctx, tokens, s.script(lua), keys, append(counts, args...)...)
	if err != nil {
		return nil, false, err
	}
	var gone []any
	for i := range replies {
		reply, _ := replies[i].([]any)
		switch word(reply, 0) {
		case "held":
			return reply, true, nil
		case "more":
			return nil, false, nil
		}
		if err := taken(r, reply); err != nil {
			return nil, false, err
		}
		if i == len(steps)-3 {
			gone = reply
		}
	}
	return nil, true, s.discard(ctx, gone)
}

// The steps of Put in one script: KEYS and ARGV are those of the steps one after the
// other, behind the numbers of each step's keys and arguments. It answers what the steps
// answer, as far as the first that does not answer ok.
const (
	stepsBegin = "local steps = {\nfunction(KEYS, ARGV)"
	stepsNext  = "end,\nfunction(KEYS, ARGV)"
	stepsEnd   = `end}
local key, arg, replies = 0, 2 * #steps, {}
for i, step in ipairs(steps) do
  local keys, args = {}, {}
  for n = 1, tonumber(ARGV[2 * i - 1]) do keys[n] = KEYS[key + n] end
  for n = 1, tonumber(ARGV[2 * i]) do args[n] = ARGV[arg + n] end
  key, arg = key + #keys, arg + #args
  replies[i] = step(keys, args)
  if replies[i][1] ~= 'ok' then break end
end
return replies`

	recordLua = stepsBegin + putLua + stepsNext + accountLua + stepsNext + listLua + stepsNext + noteWorkflowLua + stepsEnd
	rootLua   = stepsBegin + beginLua + stepsNext + putLua + stepsNext + accountLua + stepsNext + listLua + stepsNext + noteWorkflowLua + stepsEnd
)

// beginning holds the workflow for the root that begins it.
func (s *Store) beginning(r *ect.Record) call {
	return call{beginLua, []string{s.standingKey(r.Workflow), s.workflowKey(r.Workflow)}, []any{
		rootOf(r), heldFor.Milliseconds(), s.vouch.code("root", r.Workflow, rootOf(r)),
	}}
}

// putting keeps the record itself.
func (s *Store) putting(r *ect.Record, text []byte, replaces string) call {
	ours := ""
	if r.Own {
		ours = "1"
	}
	return call{putLua, []string{s.tokenKey(r.ID)}, []any{
		issuerField(r.Issuer), r.Compact, text, milliseconds(r.Until), ect.MaxNamesakes, r.Holder,
		s.vouch.code("record", r.Compact, string(text)), ours, replaces,
	}}
}

// listing notes what a record says of its workflow.
func (s *Store) listing(r *ect.Record) call {
	begins := ""
	if r.IsRoot() || r.Begins {
		begins = "1"
	}
	args := []any{listed(r), milliseconds(r.Until), maxWorkflow, rootOf(r), begins, ect.MaxMembers, s.vouch.code("root", r.Workflow, rootOf(r))}
	for _, who := range r.Members {
		args = append(args, memberField(who), s.vouch.code("member", r.Workflow, string(who)))
	}
	return call{listLua, []string{s.workflowKey(r.Workflow), s.standingKey(r.Workflow)}, args}
}

// Get finds the records that each reference means, at most one of each issuer.
func (s *Store) Get(ctx context.Context, refs ...ect.Ref) (found [][]ect.Record, err error) {
	defer lacks(&err, state.LacksReading)
	if len(refs) > ect.MaxLookups {
		return nil, ect.ErrTooManyIDs
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	replies := make([]*goredis.MapStringStringCmd, len(refs))
	_, err = s.client.Pipelined(bounded, func(p goredis.Pipeliner) error {
		for i, ref := range refs {
			replies[i] = p.HGetAll(bounded, s.tokenKey(ref.ID))
		}
		return nil
	})
	if err != nil {
		return nil, failure(ctx, "", err)
	}
	found = make([][]ect.Record, len(refs))
	var crowded []int
	for i, reply := range replies {
		fields := reply.Val()
		if fields["more"] != "" {
			crowded = append(crowded, i)
		}
		if found[i], err = s.appendAll(ctx, found[i], refs[i].ID, fields); err != nil {
			return nil, err
		}
	}
	if len(crowded) > 0 {
		if err := s.appendApart(bounded, found, refs, crowded); err != nil {
			return nil, failure(ctx, "", err)
		}
	}
	return found, nil
}

// appendAll adds the records under a key, but for those of issuers that are there.
func (s *Store) appendAll(ctx context.Context, records []ect.Record, id ect.ID, fields map[string]string) ([]ect.Record, error) {
	for name, compact := range fields {
		who, ok := strings.CutSuffix(name, ":compact")
		if !ok || slices.ContainsFunc(records, func(r ect.Record) bool { return issuerField(r.Issuer) == who }) {
			continue
		}
		at := stored{who: who, id: id, compact: compact, about: fields[who+":about"], holder: fields[who+":holder"], code: fields[who+":mac"]}
		var err error
		if records, err = s.appendRecord(ctx, records, at); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// Workflow returns the records of a workflow in the order in which they came, of the
// latest maxWorkflow of them. A cursor is the number under which the last one stands.
func (s *Store) Workflow(ctx context.Context, wid, after string, limit int) (records []ect.Record, next string, err error) {
	defer lacks(&err, state.LacksReading)
	limit = max(limit, 1)
	from := "-inf"
	if after != "" {
		if _, err := strconv.ParseUint(after, 10, 64); err != nil {
			return nil, "", ect.ErrCursor
		}
		from = "(" + after
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil || wid == "" {
		return nil, "", err
	}
	defer cancel()
	members, err := s.client.ZRangeByScoreWithScores(bounded, s.workflowKey(wid), &goredis.ZRangeBy{Min: from, Max: "+inf", Count: int64(limit)}).Result()
	if err != nil {
		return nil, "", failure(ctx, "", err)
	}
	found := make([]*goredis.SliceCmd, len(members))
	_, err = s.client.Pipelined(bounded, func(p goredis.Pipeliner) error {
		for i, one := range members {
			name, _ := one.Member.(string)
			who, id, _ := strings.Cut(name, " ")
			found[i] = p.HMGet(bounded, s.tokenKey(ect.ID(id)), fieldsOf(who)...)
		}
		return nil
	})
	if err == nil {
		err = s.readApart(bounded, members, found)
	}
	if err != nil {
		return nil, "", failure(ctx, "", err)
	}
	for i, one := range found {
		name, _ := members[i].Member.(string)
		who, id, _ := strings.Cut(name, " ")
		fields := one.Val()
		at := stored{
			who: who, id: ect.ID(id), workflow: wid,
			compact: word(fields, 0), about: word(fields, 1), holder: word(fields, 2), code: word(fields, 3),
		}
		if records, err = s.appendRecord(ctx, records, at); err != nil {
			return nil, "", err
		}
	}
	if len(members) == limit {
		next = strconv.FormatFloat(members[limit-1].Score, 'f', 0, 64)
	}
	return records, next, nil
}

// Standing says what an identity is to a workflow.
func (s *Store) Standing(ctx context.Context, wid string, who ect.Identity) (standing ect.Standing, err error) {
	defer lacks(&err, state.LacksReading)
	if wid == "" {
		return ect.Standing{}, s.within(ctx, "", func(context.Context) error { return nil })
	}
	found, err := s.fields(ctx, s.standingKey(wid), "kept", "root", "vouch", memberField(who))
	if err != nil || word(found, 0) == "" {
		return ect.Standing{}, err
	}
	issuer, member := issuerField(who), word(found, 3)
	root := word(found, 1) == issuer && s.vouch.holds(ctx, word(found, 2), "root", wid, issuer)
	return ect.Standing{
		Known: true, Root: root, Member: root || member != "" && s.vouch.holds(ctx, member, "member", wid, string(who)),
	}, nil
}

// stored is a record as it stands in Redis, and where.
type stored struct {
	who      string // digest of its issuer
	id       ect.ID
	workflow string // in whose list it was; empty: in none

	compact, about, holder, code string
}

// appendRecord adds a record that is there, and has not ended: it may stand
// beside one that lives longer.
func (s *Store) appendRecord(ctx context.Context, records []ect.Record, at stored) ([]ect.Record, error) {
	if at.about == "" || !s.vouch.holds(ctx, at.code, "record", at.compact, at.about) {
		return records, nil
	}
	var a about
	if err := json.Unmarshal([]byte(at.about), &a); err != nil {
		return nil, unavailable(errReply)
	}
	moved := a.ID != at.id || issuerField(a.Issuer) != at.who || at.workflow != "" && a.Workflow != at.workflow
	if moved || a.Until.Before(s.now()) {
		return records, nil
	}
	return append(records, ect.Record{
		Compact: at.compact, ID: a.ID, Workflow: a.Workflow, Issuer: a.Issuer, Audience: a.Audience,
		Act: a.Act, Parents: a.Parents, Until: a.Until, Own: a.Own, Holder: cmp.Or(at.holder, a.Holder), Members: a.Members, OnHold: a.OnHold,
	}), nil
}

// fieldsOf are the fields of a record.
func fieldsOf(who string) []string {
	return []string{who + ":compact", who + ":about", who + ":holder", who + ":mac"}
}

// issuerField begins the names of an issuer's fields.
func issuerField(issuer ect.Identity) string { return digest(string(issuer)).hex() }

// memberField is the name of a member's field beside that of the root.
func memberField(who ect.Identity) string { return "m:" + digest(string(who)).hex() }

func (s *Store) tokenKey(id ect.ID) string { return s.config.Prefix + "t:" + digest(string(id)).hex() }

// apartKey is the key of a record that came when MaxNamesakes others had its id.
func (s *Store) apartKey(who string, id ect.ID) string {
	return s.config.Prefix + "n:" + digest(who, string(id)).hex()
}

func (s *Store) workflowKey(wid string) string { return s.workflowKeyOf(digest(wid).hex()) }

func (s *Store) workflowKeyOf(digest string) string { return s.config.Prefix + "w:" + digest }

// standingKey is in the slot of workflowKey: what stands between braces decides, or else
// all of the key.
func (s *Store) standingKey(wid string) string {
	return s.standingOf(s.workflowKey(wid))
}

func (s *Store) standingOf(list string) string { return s.config.Prefix + "m:{" + list + "}" }
