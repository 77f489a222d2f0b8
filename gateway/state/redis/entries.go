package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// accountsLua begins the scripts that change entries. An owner's account is three keys:
// when each entry ends, what each takes, and which of them have ended in which order. A
// name on an account is the digest of kind and group, a colon, and the id. Beside these
// is one account of all owners, and the order of those that have something that ended, by
// what they take. The last two ARGV are the account of all, "" in a cluster, and the bytes
// that one entry more counts for in that order. An entry that was never counted leaves
// without a trace.
const accountsLua = clockLua + `
local all, weight = ARGV[#ARGV - 1], tonumber(ARGV[#ARGV])
local function number(account, field) return tonumber(redis.call('HGET', account .. ':h', field) or '0') end
local function kept(account, name)
  local size, kind = string.match(redis.call('HGET', account .. ':h', name) or '', '^(%d+) (.*)$')
  return tonumber(size), kind
end
local function rank(account)
  if all == '' then return end
  if redis.call('ZCARD', account .. ':d') == 0 then return redis.call('ZREM', all .. ':o', account) end
  redis.call('ZADD', all .. ':o', number(account, 'bytes') + redis.call('ZCARD', account .. ':z') * weight, account)
end
local function take(account, name)
  local size, kind = kept(account, name)
  if not size then return end
  redis.call('HINCRBY', account .. ':h', 'bytes', -size)
  redis.call('HINCRBY', account .. ':h', 'bytes ' .. kind, -size)
  redis.call('HINCRBY', account .. ':h', 'count ' .. kind, -1)
  redis.call('HDEL', account .. ':h', name)
  redis.call('ZREM', account .. ':z', name)
  redis.call('ZREM', account .. ':d', name)
end
local function forget(account, name)
  take(account, name)
  rank(account)
  if all ~= '' then take(all, name) end
end
local function clean(account)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', account .. ':z', '-inf', '(' .. now, 'LIMIT', 0, 1000)) do take(account, name) end
  rank(account)
end
`

// swapLua: KEYS entry, ids in order, ids by their end, the three of its owner's
// account; ARGV old, value, until (ms), until (ns), nonce, id, channel or nothing,
// prefix of all keys, name on the account, size, kind, 1 if it has ended, most
// entries of an owner, most of a kind, most bytes of an owner, most of a kind,
// account, owner as the key has it, the four bounds of all owners, 1 if a new entry
// must take the place of others, most entries of an owner that are no records, most
// bytes, the same of all owners, the kinds of records. Revisions follow the server's clock, so that
// one never comes back after a deletion.
const swapLua = accountsLua + `
local known = redis.call('HMGET', KEYS[1], 'revision', 'by', 'account')
if known[2] == ARGV[5] then return {'ok', known[1]} end
local at = known[1] or '0'
if at ~= ARGV[1] then return {'lost'} end
if not known[1] then
  local over = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 1000)
  if #over > 0 then
    redis.call('ZREM', KEYS[2], unpack(over))
    redis.call('ZREM', KEYS[3], unpack(over))
  end
end
clean(ARGV[17])
if all ~= '' then clean(all) end
local size, kind, ended, isbulk = tonumber(ARGV[10]), ARGV[11], ARGV[12] == '1', #ARGV > 29
for i = 28, #ARGV - 2 do isbulk = isbulk and ARGV[i] ~= kind end
local function bulk(account, field, sum)
  for i = 28, #ARGV - 2 do sum = sum - number(account, field .. ARGV[i]) end
  return sum
end
local function short(account, bounds, most)
  local before = kept(account, ARGV[9])
  local more, one = size - (before or 0), before and 0 or 1
  local count, bytes = redis.call('ZCARD', account .. ':z') + one, number(account, 'bytes') + more
  if count > tonumber(ARGV[bounds]) or bytes > tonumber(ARGV[bounds + 2]) then return 'all' end
  if number(account, 'count ' .. kind) + one > tonumber(ARGV[bounds + 1]) or number(account, 'bytes ' .. kind) + more > tonumber(ARGV[bounds + 3]) then return 'kind' end
  if isbulk and (bulk(account, 'count ', count) > tonumber(ARGV[most]) or bulk(account, 'bytes ', bytes) > tonumber(ARGV[most + 1])) then return 'bulk' end
end
local function oldest(account)
  local first = redis.call('ZRANGE', account .. ':d', 0, 1)
  if first[1] == ARGV[9] then return first[2] end
  return first[1]
end
local function largest()
  for _, account in ipairs(redis.call('ZREVRANGE', all .. ':o', 0, 31)) do
    clean(account)
    local name = oldest(account)
    if name then return account, name end
  end
end
local function drop(account, name)
  local colon = string.find(name, ':', 1, true)
  local tag, id = '{' .. string.sub(name, 1, colon - 1) .. '}:', string.sub(name, colon + 1)
  redis.call('DEL', ARGV[8] .. 'e:' .. tag .. id)
  redis.call('ZREM', ARGV[8] .. 'i:' .. tag, id)
  redis.call('ZREM', ARGV[8] .. 'x:' .. tag, id)
  forget(account, name)
  if ARGV[7] ~= '' then redis.call('PUBLISH', ARGV[7], ARGV[8] .. 'e:' .. tag .. id) end
end
while short(ARGV[17], 13, 24) do
  local name = oldest(ARGV[17])
  if name then drop(ARGV[17], name) elseif ended then break else return {'full'} end
end
local need = ARGV[23] == '1' and size or 0
while all ~= '' do
  local bound = short(all, 19, 26)
  if not bound and need <= 0 then break end
  local account, name = largest()
  local bytes, ofkind
  if name then bytes, ofkind = kept(account, name) end
  if not name or bound == 'kind' and ofkind ~= kind then
    if ended and known[1] then break end
    return {'crowded'}
  end
  need = need - bytes
  drop(account, name)
end
local revision = string.format('%.0f', math.max(tonumber(at) + 1, t[1] * 1000000 + t[2]))
redis.call('HSET', KEYS[1], 'revision', revision, 'value', ARGV[2], 'until', ARGV[4], 'by', ARGV[5], 'account', ARGV[17], 'owner', ARGV[18])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], 0, ARGV[6])
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[6])
local left = redis.call('PTTL', KEYS[3])
if left < 0 or left < tonumber(ARGV[3]) - now then
  redis.call('PEXPIREAT', KEYS[2], ARGV[3])
  redis.call('PEXPIREAT', KEYS[3], ARGV[3])
end
if known[3] then forget(known[3], ARGV[9]) end
forget(ARGV[17], ARGV[9])
if ended then redis.call('ZADD', KEYS[6], revision, ARGV[9]) end
for _, account in ipairs(all ~= '' and {ARGV[17], all} or {ARGV[17]}) do
  redis.call('HSET', account .. ':h', ARGV[9], ARGV[10] .. ' ' .. kind)
  redis.call('HINCRBY', account .. ':h', 'bytes', size)
  redis.call('HINCRBY', account .. ':h', 'bytes ' .. kind, size)
  redis.call('HINCRBY', account .. ':h', 'count ' .. kind, 1)
  redis.call('ZADD', account .. ':z', ARGV[3], ARGV[9])
  rank(account)
  local over = string.format('%.0f', math.max(tonumber(ARGV[3]), now + redis.call('PTTL', account .. ':h')))
  for _, key in ipairs({':z', ':h', ':d', ':o'}) do redis.call('PEXPIREAT', account .. key, over) end
end
if ARGV[7] ~= '' then redis.call('PUBLISH', ARGV[7], KEYS[1]) end
return {'ok', revision}
`

// deleteLua: KEYS entry, ids in order, ids by their end; ARGV id, name on its
// owner's account, channel or nothing.
const deleteLua = accountsLua + `
local account = redis.call('HGET', KEYS[1], 'account')
if account then forget(account, ARGV[2]) end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if ARGV[3] ~= '' then redis.call('PUBLISH', ARGV[3], KEYS[1]) end
return {'ok'}
`

// confirmLua writes an entry again as it is, so that WAIT speaks of it: what was read may be the
// write of another replica that no copy of Redis has yet. KEYS entry; ARGV revision.
const confirmLua = `
local known = redis.call('HMGET', KEYS[1], 'revision', 'value')
if known[1] ~= ARGV[1] then return {'lost'} end
redis.call('HSET', KEYS[1], 'revision', known[1], 'value', known[2])
return {'ok'}
`

// Entries are [state.Entries] that every replica sees. A Swap or Delete of a durable kind counts
// when as many replicas of Redis as configured have it (R18); [state.UnavailableError] with
// [ErrUnconfirmed]: fewer have it, no wait was woken, and the change may be lost or not.
//
// A script that writes an entry also keeps its owner's account and that of all owners,
// so that shares and the bounds in all are exact on a server and with Sentinels, and
// the oldest of the owner that has most gives way. While [Crowded] of maxmemory is in use, an entry
// that is no record (state.Config.RecordKinds) begins only in the place of such. In a cluster, where a
// script has one slot, the share is of an owner's entries of one kind and group, and the bound
// of all owners is Redis's own: there the reserve is the last eighth of maxmemory alone.
type Entries struct {
	store   *Store
	watches watches
}

// Get finds an entry; false: there is none, or none any more.
func (e *Entries) Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error) {
	fields, err := e.store.fields(ctx, e.keys(key)[0], "revision", "value", "until", "owner")
	if err != nil {
		return state.Entry{}, false, err
	}
	return entryOf(key, fields)
}

// fields are those of a hash.
func (s *Store) fields(ctx context.Context, key string, names ...string) (found []any, err error) {
	err = s.within(ctx, "", func(bounded context.Context) (err error) {
		found, err = s.client.HMGet(bounded, key, names...).Result()
		return err
	})
	return found, err
}

func entryOf(key state.EntryKey, fields []any) (state.Entry, bool, error) {
	if len(fields) != 4 || fields[0] == nil {
		return state.Entry{}, false, nil
	}
	revision, err := strconv.ParseUint(word(fields, 0), 10, 64)
	until, err2 := strconv.ParseInt(word(fields, 2), 10, 64)
	if err = errors.Join(err, err2); err != nil {
		return state.Entry{}, false, unavailable(errReply)
	}
	key.Owner = word(fields, 3)
	return state.Entry{Key: key, Revision: revision, Value: []byte(word(fields, 1)), Until: time.Unix(0, until)}, true, nil
}

// Swap writes an entry, as [state.Entries.Swap] does, for all replicas at once.
func (e *Entries) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	bounds := e.store.config.Bounds
	if len(value) > bounds.MaxEntryBytes {
		return 0, false, &state.FullError{What: "an entry of this size"}
	}
	crowded := old == 0 && e.store.crowded(key.Kind)
	if crowded && e.store.sharded() {
		return 0, false, &state.FullError{What: "entries", RetryAfter: retryAfter}
	}
	account := e.account(key)
	keys := append(e.keys(key), account+":z", account+":h", account+":d")
	reply, err := e.write(ctx, key, e.store.script(swapLua), keys, func(channel string) []any {
		args := []any{
			strconv.FormatUint(old, 10), value, milliseconds(until), until.UnixNano(), nonce(), key.ID, channel,
			e.store.config.Prefix, nameOf(key), key.Size(value), key.Kind, state.Ended(value) && !slices.Contains(bounds.RecordKinds, key.Kind),
			bounds.MaxEntriesPerOwner, state.KindShare(bounds.MaxEntriesPerOwner),
			bounds.MaxEntriesBytesPerOwner, state.KindShare(bounds.MaxEntriesBytesPerOwner), account, key.Owner,
			bounds.MaxEntries, state.KindShare(bounds.MaxEntries), bounds.MaxEntriesBytes, state.KindShare(bounds.MaxEntriesBytes), crowded,
			state.BulkShare(bounds.MaxEntriesPerOwner), state.BulkShare(bounds.MaxEntriesBytesPerOwner),
			state.BulkShare(bounds.MaxEntries), state.BulkShare(bounds.MaxEntriesBytes),
		}
		for _, kind := range bounds.RecordKinds {
			args = append(args, kind)
		}
		return append(args, e.accountOfAll(), e.weight())
	})
	if err != nil {
		return 0, false, err
	}
	switch word(reply, 0) {
	case "ok":
		revision, err := strconv.ParseUint(word(reply, 1), 10, 64)
		if err != nil {
			return 0, false, unavailable(errReply)
		}
		return revision, true, nil
	case "lost":
		return 0, false, nil
	case "full":
		return 0, false, &state.FullError{What: "entries of this caller", Own: true, RetryAfter: retryFull}
	case "crowded":
		return 0, false, &state.FullError{What: "entries", RetryAfter: retryFull}
	default:
		return 0, false, unavailable(errReply)
	}
}

// Confirm writes an entry again if it is still at a revision, and waits for as many replicas of Redis as
// Swap does, so that a failover after it cannot lose what was read before it (R18).
func (e *Entries) Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error) {
	reply, err := e.write(ctx, key, e.store.script(confirmLua), e.keys(key)[:1], func(string) []any {
		return []any{strconv.FormatUint(revision, 10)}
	})
	return err == nil && word(reply, 0) == "ok", err
}

// retryFull is when to try again where a caller's share is used up by what goes on.
const retryFull = 5 * time.Second

// nameOf is the name of an entry on its owner's account.
func nameOf(key state.EntryKey) string { return digest(key.Kind, key.Group).hex() + ":" + key.ID }

// account begins the keys of an owner's account: in a cluster, in the slot of the
// entry.
func (e *Entries) account(key state.EntryKey) string {
	owner := digest(key.OwnerOf()).hex()
	tag := owner
	if e.store.sharded() {
		tag = digest(key.Kind, key.Group).hex()
	}
	return e.store.config.Prefix + "o:{" + tag + "}:" + owner
}

// accountOfAll begins the keys of the account of all owners; empty: a cluster, where they
// have no slot in common.
func (e *Entries) accountOfAll() string {
	if e.store.sharded() {
		return ""
	}
	return e.store.config.Prefix + "o:all"
}

// weight is what one entry counts for beside its bytes when owners are compared.
func (e *Entries) weight() int64 {
	bounds := e.store.config.Bounds
	return bounds.MaxEntriesBytes / int64(bounds.MaxEntries)
}

// Delete removes an entry; one that is not there is no error.
func (e *Entries) Delete(ctx context.Context, key state.EntryKey) error {
	_, err := e.write(ctx, key, e.store.script(deleteLua), e.keys(key), func(channel string) []any {
		return []any{key.ID, nameOf(key), channel, e.accountOfAll(), e.weight()}
	})
	return err
}

// write runs a script that changes an entry, waits for replicas if it has to, and then wakes the
// waits for the entry.
func (e *Entries) write(ctx context.Context, key state.EntryKey, lua *goredis.Script, keys []string, args func(channel string) []any) (reply []any, err error) {
	s := e.store
	if s.config.Wait == 0 || slices.Contains(s.config.Fleeting, key.Kind) {
		reply, err := s.run(ctx, "entries", lua, keys, args(s.channel())...)
		if err == nil && word(reply, 0) == "ok" {
			e.watches.wake(keys[0])
		}
		return reply, err
	}
	err = s.within(ctx, "entries", func(bounded context.Context) (err error) {
		if reply, err = s.confirmed(bounded, lua, keys, args("")); err == nil && word(reply, 0) == "ok" {
			e.watches.wake(keys[0])
			_ = s.client.Publish(bounded, s.channel(), keys[0]).Err() // those who wait also look by themselves
		}
		return err
	})
	return reply, err
}

// List lists entries of one group, as [state.Entries.List] does.
func (e *Entries) List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error) {
	var found []state.Entry
	err := e.store.within(ctx, "", func(bounded context.Context) error {
		for len(found) < limit {
			most := min(limit-len(found), listAtOnce)
			ids, page, err := e.page(bounded, kind, group, after, most)
			if found = append(found, page...); err != nil || len(ids) < most {
				return err
			}
			after = ids[len(ids)-1]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

const listAtOnce = 256

// page is what is alive of the next ids. What no replica can have written there is left
// out and counted, so that it does not hide the others.
func (e *Entries) page(ctx context.Context, kind, group, after string, most int) (ids []string, found []state.Entry, err error) {
	keys := e.keys(state.EntryKey{Kind: kind, Group: group})
	ids, err = e.store.client.ZRangeByLex(ctx, keys[1], &goredis.ZRangeBy{Min: "(" + after, Max: "+", Count: int64(most)}).Result()
	if err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	values := make([]*goredis.SliceCmd, len(ids))
	_, _ = e.store.client.Pipelined(ctx, func(p goredis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			values[i] = p.HMGet(ctx, keys[0]+id, "revision", "value", "until", "owner")
		}
		return nil
	})
	for i, id := range ids {
		err := values[i].Err()
		if err != nil && !goredis.HasErrorPrefix(err, "WRONGTYPE") {
			return nil, nil, err
		}
		one, ok, malformed := entryOf(state.EntryKey{Kind: kind, Group: group, ID: id}, values[i].Val())
		switch {
		case err != nil || malformed != nil:
			e.store.vouch.refuse(ctx)
		case ok:
			found = append(found, one)
		}
	}
	return ids, found, nil
}

// keys are those of an entry and of its group's two lists, all in one slot.
func (e *Entries) keys(key state.EntryKey) []string {
	tag := "{" + digest(key.Kind, key.Group).hex() + "}:"
	prefix := e.store.config.Prefix
	return []string{prefix + "e:" + tag + key.ID, prefix + "i:" + tag, prefix + "x:" + tag}
}

// confirmed runs a script and waits for replicas on one and the same connection
// to the master of its keys: WAIT speaks of what its own connection wrote.
func (s *Store) confirmed(ctx context.Context, lua *goredis.Script, keys []string, args []any) ([]any, error) {
	for attempt := 0; ; attempt++ {
		reply, err := s.onMaster(ctx, keys[0], func(conn *goredis.Conn) ([]any, error) {
			return s.writeAndWait(ctx, conn, lua, keys, args)
		})
		if err == nil || attempt == 3 || !moved(err) {
			return reply, err
		}
		if cluster, ok := s.client.(*goredis.ClusterClient); ok {
			cluster.ReloadState(ctx)
		}
	}
}

func (s *Store) onMaster(ctx context.Context, key string, do func(*goredis.Conn) ([]any, error)) (reply []any, err error) {
	var node *goredis.Client
	switch c := s.client.(type) {
	case *goredis.ClusterClient:
		if node, err = c.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	case *goredis.Client:
		node = c
	default:
		return nil, errUnsafe
	}
	conn := node.Conn()
	defer func() { err = errors.Join(err, conn.Close()) }()
	return do(conn)
}

func (s *Store) writeAndWait(ctx context.Context, conn *goredis.Conn, lua *goredis.Script, keys []string, args []any) ([]any, error) {
	reply, err := lua.Run(ctx, conn, keys, args...).Slice()
	if err != nil || word(reply, 0) != "ok" {
		return reply, err
	}
	// Half of what is left: the answer must be here before the deadline.
	limit := s.config.Timeout / 2
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Until(deadline)/2, time.Millisecond)
	}
	have, err := conn.Wait(ctx, s.config.Wait, limit).Result()
	if err != nil {
		return nil, err
	}
	if have < int64(s.config.Wait) {
		return nil, fmt.Errorf("%w: %d of %d", ErrUnconfirmed, have, s.config.Wait)
	}
	return reply, nil
}

// moved: another node has the slot now, and nothing was written.
func moved(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "MOVED ") || strings.HasPrefix(text, "ASK ") || strings.HasPrefix(text, "TRYAGAIN ")
}
