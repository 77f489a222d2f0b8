package redis

import (
	"context"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// blobsLua begins the scripts that change blobs. A group has an account, and on a server all
// blobs together have one: when each blob ends (:z), the names in order (:i, of a group alone), and what is
// counted (:h): "bytes", "bytes OWNER", "count OWNER", and of each blob "/NAME", which is its cost and its
// owner. A name is the ID on the account of a group, and on that of all the digest of the group,
// a colon and the ID. The last ARGV is the account of all, "" in a cluster.
const blobsLua = clockLua + `
local all = ARGV[#ARGV]
local function number(account, field) return tonumber(redis.call('HGET', account .. ':h', field) or '0') end
local function add(account, field, n)
  if redis.call('HINCRBY', account .. ':h', field, n) == 0 then redis.call('HDEL', account .. ':h', field) end
end
local function forget(account, name)
  local cost, owner = string.match(redis.call('HGET', account .. ':h', '/' .. name) or '', '^(%d+) (.*)$')
  if cost then
    add(account, 'bytes', -cost)
    add(account, 'bytes ' .. owner, -cost)
    add(account, 'count ' .. owner, -1)
  end
  redis.call('HDEL', account .. ':h', '/' .. name)
  redis.call('ZREM', account .. ':z', name)
  redis.call('ZREM', account .. ':i', name)
end
local function clean(account)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', account .. ':z', '-inf', '(' .. now, 'LIMIT', 0, 1000)) do forget(account, name) end
end
`

// putBlobLua: KEYS blob; ARGV value, until (ms), until (ns), the account of its group, ID, name on the account
// of all, digest of the owner, owner, cost, 1 if no blob may begin, the four bounds of a group (blobs,
// blobs of an owner, bytes, bytes of an owner), those of all, 1 if it may replace, what
// it replaces, account of all. Whatever it answers "ok" to, it has written, so that WAIT speaks of it. An end that is past writes nothing new.
const putBlobLua = blobsLua + `
local value, til, ends, group, id, name, owner = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local function last()
  redis.call('PEXPIREAT', KEYS[1], ARGV[2])
  redis.call('ZADD', group .. ':z', til, id)
  for _, key in ipairs({':z', ':h', ':i'}) do lives(group .. key, ARGV[2]) end
  if all == '' then return end
  redis.call('ZADD', all .. ':z', til, name)
  for _, key in ipairs({':z', ':h'}) do lives(all .. key, ARGV[2]) end
end
local function later(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end
local known = redis.call('HMGET', KEYS[1], 'value', 'until')
if known[1] then
  local replaces = ARGV[19] == '1' and known[1] == ARGV[20] and #value == #known[1]
  if known[1] ~= value and not replaces then return {'taken'} end
  if not later(ends, known[2]) then
    redis.call('HSET', KEYS[1], 'until', known[2])
    return {'ok'}
  end
  redis.call('HSET', KEYS[1], 'until', ends)
  if replaces then redis.call('HSET', KEYS[1], 'value', value) end
  last()
  return {'ok'}
end
local function admit(total, per, used, has, n)
  total, per = tonumber(total), tonumber(per)
  has = has + n
  local free = total - used - n
  if has > per then return 'own' end
  if free < 0 or free < math.floor(total / 4) and has > math.max(1, math.floor(per / 8)) then return 'all' end
end
local function refusal(account, bounds)
  clean(account)
  return admit(ARGV[bounds], ARGV[bounds + 1], redis.call('ZCARD', account .. ':z'), number(account, 'count ' .. owner), 1)
    or admit(ARGV[bounds + 2], ARGV[bounds + 3], number(account, 'bytes'), number(account, 'bytes ' .. owner), tonumber(ARGV[9]))
end
forget(group, id)
if all ~= '' then forget(all, name) end
local full = refusal(group, 11)
if full then return {'group', full} end
if ARGV[10] == '1' then return {'full', 'all'} end
full = all ~= '' and refusal(all, 15)
if full then return {'full', full} end
redis.call('HSET', KEYS[1], 'value', value, 'until', ends, 'owner', ARGV[8])
redis.call('ZADD', group .. ':i', 0, id)
for account, key in pairs({[group] = id, [all] = name}) do
  if account ~= '' then
    redis.call('HSET', account .. ':h', '/' .. key, ARGV[9] .. ' ' .. owner)
    redis.call('HINCRBY', account .. ':h', 'bytes', ARGV[9])
    redis.call('HINCRBY', account .. ':h', 'bytes ' .. owner, ARGV[9])
    redis.call('HINCRBY', account .. ':h', 'count ' .. owner, 1)
  end
end
last()
return {'ok'}
`

// deleteBlobLua: KEYS blob; ARGV the account of its group, ID, name on the account of all, account of
// all. It writes something in any case: what another connection deleted may be on no replica yet.
const deleteBlobLua = blobsLua + `
redis.call('DEL', KEYS[1])
forget(ARGV[1], ARGV[2])
if all ~= '' then forget(all, ARGV[3]) end
redis.call('SET', ARGV[1] .. ':w', '1', 'PX', 1000)
return {'ok'}
`

// usedBlobsLua: ARGV account of all.
const usedBlobsLua = blobsLua + `
clean(all)
return {redis.call('ZCARD', all .. ':z'), number(all, 'bytes')}
`

// Blobs are [state.Blobs] that every replica sees. A Put or Delete counts when as many replicas of Redis
// as configured have it (R18); [state.UnavailableError] with [ErrUnconfirmed]: fewer have it, and the
// same again writes again and waits. No blob begins while more than [Crowded] of maxmemory is
// in use, so that blobs leave that space to records. In a cluster, where a script has one slot,
// the bounds are those of a group and maxmemory alone: a caller can have its share in each of many groups,
// until Crowded.
type Blobs struct{ store *Store }

var _ state.Blobs = (*Blobs)(nil)

// Blobs are kept beside the rest, as entries are.
func (s *Store) Blobs() *Blobs { return &Blobs{s} }

// Put writes once, as [state.Blobs] explains it.
func (b *Blobs) Put(ctx context.Context, key state.BlobKey, value []byte, until time.Time) error {
	return b.Replace(ctx, key, nil, value, until)
}

// Replace is Put that also takes the place of was, as [state.MemoryBlobs.Replace] does.
func (b *Blobs) Replace(ctx context.Context, key state.BlobKey, was, value []byte, until time.Time) error {
	bounds := b.store.config.Blobs
	if err := bounds.CheckSize(key, len(value)); err != nil {
		return err
	}
	reply, err := b.write(ctx, putBlobLua, key,
		value, milliseconds(until), until.UnixNano(), b.account(key.Group), key.ID, blobName(key), digest(key.Owner).hex(), key.Owner,
		key.Cost(len(value)), b.store.Filled() > Crowded,
		bounds.MaxPerGroup, bounds.MaxPerMember, bounds.MaxBytesPerGroup, bounds.MaxBytesPerMember,
		bounds.MaxBlobs, bounds.MaxPerOwner, bounds.MaxBytes, bounds.MaxBytesPerOwner,
		was != nil, was, b.accountOfAll(),
	)
	if err != nil {
		return err
	}
	own := word(reply, 1) == "own"
	switch word(reply, 0) {
	case "ok":
		return nil
	case "taken":
		return &state.BlobTakenError{Key: state.BlobKey{Group: key.Group, ID: key.ID}}
	case "group":
		return state.FullGroup(own)
	case "full":
		return state.FullBlobs(own)
	default:
		return unavailable(errReply)
	}
}

// Delete removes a blob, as [state.Blobs] explains it.
func (b *Blobs) Delete(ctx context.Context, key state.BlobKey) error {
	_, err := b.write(ctx, deleteBlobLua, key, b.account(key.Group), key.ID, blobName(key), b.accountOfAll())
	return err
}

// write runs a script that changes a blob, and waits for replicas if it has to.
func (b *Blobs) write(ctx context.Context, lua string, key state.BlobKey, args ...any) (reply []any, err error) {
	return b.store.lasting(ctx, "blobs", b.store.script(lua), []string{b.key(key.Group) + key.ID}, args...)
}

// Get finds a blob, as [state.Blobs] explains it.
func (b *Blobs) Get(ctx context.Context, key state.BlobKey) (value []byte, until time.Time, found bool, err error) {
	fields, err := b.store.fields(ctx, b.key(key.Group)+key.ID, "value", "until")
	if err != nil || len(fields) != 2 || fields[0] == nil {
		return nil, time.Time{}, false, err
	}
	end, err := strconv.ParseInt(word(fields, 1), 10, 64)
	if err != nil {
		return nil, time.Time{}, false, unavailable(errReply)
	}
	return []byte(word(fields, 0)), time.Unix(0, end), true, nil
}

// List lists blobs, as [state.Blobs] explains it.
func (b *Blobs) List(ctx context.Context, group, after string, limit int) (found []state.BlobInfo, err error) {
	err = b.store.within(ctx, "", func(bounded context.Context) error {
		for len(found) < limit {
			most := min(limit-len(found), listAtOnce)
			ids, page, err := b.page(bounded, group, after, most)
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

// page is what is there of the next IDs. What is no blob of ours is left out and counted, so that it does
// not hide the others.
func (b *Blobs) page(ctx context.Context, group, after string, most int) (ids []string, found []state.BlobInfo, err error) {
	ids, err = b.store.client.ZRangeByLex(ctx, b.account(group)+":i", &goredis.ZRangeBy{Min: "(" + after, Max: "+", Count: int64(most)}).Result()
	if err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	sizes, fields := make([]*goredis.Cmd, len(ids)), make([]*goredis.SliceCmd, len(ids))
	_, _ = b.store.client.Pipelined(ctx, func(p goredis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			sizes[i] = p.Do(ctx, "HSTRLEN", b.key(group)+id, "value")
			fields[i] = p.HMGet(ctx, b.key(group)+id, "until", "owner")
		}
		return nil
	})
	for i, id := range ids {
		size, err := sizes[i].Int()
		if err == nil {
			err = fields[i].Err()
		}
		if err != nil && !goredis.HasErrorPrefix(err, "WRONGTYPE") {
			return nil, nil, err
		}
		end, malformed := strconv.ParseInt(word(fields[i].Val(), 0), 10, 64)
		switch {
		case err != nil, malformed != nil && word(fields[i].Val(), 0) != "":
			b.store.vouch.refuse(ctx)
		case malformed == nil:
			found = append(found, state.BlobInfo{
				Key: state.BlobKey{Group: group, ID: id, Owner: word(fields[i].Val(), 1)}, Size: size, Until: time.Unix(0, end),
			})
		}
	}
	return ids, found, nil
}

// Usage says how full the store is; zero: Redis is away, or is a cluster, where no account is of all.
func (b *Blobs) Usage() state.Usage {
	if b.store.sharded() {
		return state.Usage{}
	}
	all := b.accountOfAll()
	reply, err := b.store.run(b.store.ctx, "", b.store.script(usedBlobsLua), []string{all + ":z"}, all)
	if err != nil || len(reply) != 2 {
		return state.Usage{}
	}
	count, _ := reply[0].(int64)
	bytes, _ := reply[1].(int64)
	return state.Usage{Entries: int(count), Bytes: bytes}
}

// key begins the keys of a group's blobs, all in the slot of its account.
func (b *Blobs) key(group string) string {
	return b.store.config.Prefix + "b:{" + digest(group).hex() + "}:"
}

// account begins the keys of the account of a group.
func (b *Blobs) account(group string) string {
	return b.store.config.Prefix + "ba:{" + digest(group).hex() + "}"
}

// accountOfAll begins the keys of the account of all blobs; empty: a cluster.
func (b *Blobs) accountOfAll() string {
	if b.store.sharded() {
		return ""
	}
	return b.store.config.Prefix + "ba:all"
}

// blobName is the name of a blob on the account of all.
func blobName(key state.BlobKey) string { return digest(key.Group).hex() + ":" + key.ID }
