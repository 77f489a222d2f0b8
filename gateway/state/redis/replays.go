package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// replayShards is over how many slots uses of tokens are spread. Each has an
// epoch of its own, beside its uses.
const replayShards = 64

// epochLua is the beginning of every script that works with an epoch: since when,
// in microseconds of the server's clock, uses are known in this slot (R6). The
// epoch is kept with the id of the replication history that it was made in, which
// is another after every restart and every failover, when uses may be lost. No token is
// used before its date, so those that were used are dated before it. What is left is for
// how many microseconds more tokens that are made now are dated before it, too.
const epochLua = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
local kept = redis.call('HMGET', KEYS[1], 'history', 'epoch')
local epoch = tonumber(kept[2])
if kept[1] ~= history then
  epoch = math.max(epoch or 0, now)
  redis.call('HSET', KEYS[1], 'history', history, 'epoch', string.format('%.0f', epoch))
end
local left = string.format('%.0f', math.max(math.ceil(epoch / 1000000) * 1000000 - now, 0))
`

// claimLua: KEYS epoch, use; ARGV what for, nonce, issued (µs), until (ms).
// A use that carries our own nonce is this very call, sent again after its
// answer was lost.
const claimLua = epochLua + `
local known = redis.call('HMGET', KEYS[2], 'for', 'by')
if known[1] then
  if known[1] ~= ARGV[1] then return {'conflict'} end
  if known[2] == ARGV[2] then return {'fresh'} end
  return {'same'}
end
if tonumber(ARGV[3]) > now then return {'ahead', string.format('%.0f', tonumber(ARGV[3]) - now)} end
if tonumber(ARGV[3]) < epoch then return {'unknown', left} end
redis.call('HSET', KEYS[2], 'for', ARGV[1], 'by', ARGV[2])
redis.call('PEXPIREAT', KEYS[2], ARGV[4])
return {'fresh'}
`

// Claim notes the use of a token, as [state.Replays.Claim] does, for all replicas at once.
// [state.UnavailableError]: Redis is away, or has lost uses and cannot say yet which tokens are new
// (R6); the token may not be used.
func (s *Store) Claim(ctx context.Context, key ect.ReplayKey, use ect.ReplayUse) (_ ect.ReplayState, err error) {
	defer lacks(&err, state.LacksReplay)
	name := digest(string(key.Issuer), key.Workflow, string(key.ID))
	shard := int(name[0]) % replayShards
	reply, err := s.run(ctx, "uses of tokens", s.script(claimLua),
		[]string{s.epochKey(shard), s.config.Prefix + "r:" + shardTag(shard) + ":" + name.hex()},
		digest(use.Token, use.Body).hex(), nonce(), use.Issued.UnixMicro(), milliseconds(use.Until))
	if err != nil {
		return ect.ReplayUnknown, err
	}
	switch word(reply, 0) {
	case "fresh":
		return ect.ReplayFresh, nil
	case "same":
		return ect.ReplaySame, nil
	case "conflict":
		return ect.ReplayConflict, nil
	case "ahead":
		if err := state.AwaitIssue(ctx, micros(word(reply, 1))); err != nil {
			return ect.ReplayUnknown, err
		}
		return s.Claim(ctx, key, use)
	case "unknown":
		left := micros(word(reply, 1))
		s.settle(left)
		return ect.ReplayUnknown, young(left)
	default:
		return ect.ReplayUnknown, unavailable(errReply)
	}
}

// young refuses for as long as the epoch is ahead, and for the rest of its second,
// because iat has whole seconds: no token could be newer, however soon it is made,
// so the caller is told when to come again. Afterwards
// what was issued before it is refused for good, and what is made anew is not.
func young(left time.Duration) error {
	if left <= 0 {
		return nil
	}
	return &state.UnavailableError{Err: errYoung, RetryAfter: left, Lacks: state.LacksReplay}
}

// Young is why a token that is made now would be refused, as of a second ago; nil: it
// would not. It asks Redis nothing.
func (s *Store) Young() error { return young(time.Unix(0, s.settled.Load()).Sub(s.now())) }

// settle notes for how long tokens that are made now are refused in one slot. Another one may refuse
// them for longer, and only touchEpochs knows about all.
func (s *Store) settle(left time.Duration) {
	at := s.now().Add(left).UnixNano()
	for before := s.settled.Load(); before < at && !s.settled.CompareAndSwap(before, at); {
		before = s.settled.Load()
	}
}

// micros reads a number of microseconds; zero for any other text.
func micros(text string) time.Duration {
	number, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(number) * time.Microsecond
}

// touchEpochs lets every slot notice a new history soon after it began, and not
// only with the first token that is refused for it.
func (s *Store) touchEpochs(ctx context.Context) error {
	replies := make([]*goredis.Cmd, replayShards)
	_, err := s.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for shard := range replies {
			replies[shard] = p.Eval(ctx, epochLua+"return left", []string{s.epochKey(shard)})
		}
		return nil
	})
	longest := time.Duration(0)
	for _, reply := range replies {
		left, _ := reply.Text() // without an answer err says so
		longest = max(longest, micros(left))
	}
	if err == nil {
		s.settled.Store(s.now().Add(longest).UnixNano())
	}
	return err
}

func (s *Store) epochKey(shard int) string { return s.config.Prefix + "epoch:" + shardTag(shard) }

func shardTag(shard int) string { return "{r" + strconv.Itoa(shard) + "}" }

// name stands for a list of texts in a key: 128 bits of SHA-256.
type name [16]byte

func (n name) hex() string { return hex.EncodeToString(n[:]) }

// digest hashes texts with their lengths, so that no two lists of texts are the
// same bytes.
func digest(texts ...string) name {
	var buffer []byte
	for _, text := range texts {
		buffer = binary.BigEndian.AppendUint64(buffer, uint64(len(text)))
		buffer = append(buffer, text...)
	}
	sum := sha256.Sum256(buffer)
	return name(sum[:16])
}

// nonce names one call, however often it is sent.
func nonce() string { return rand.Text() }

// milliseconds is the first one that is not before t: nothing ends early.
func milliseconds(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// word is a text of a reply.
func word(reply []any, at int) string {
	if at >= len(reply) {
		return ""
	}
	switch v := reply[at].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}
