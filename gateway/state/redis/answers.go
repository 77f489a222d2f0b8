package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// Finish stores an answer, as [state.Answers.Finish] does. While Redis is away
// or full it is not kept. An owner with more than its share loses those of its own
// that end first.
func (s *Store) Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	if len(answer) > s.config.Bounds.MaxAnswerBytes || !until.After(s.now()) {
		return
	}
	if keys, args, ok := s.answer(key, answer, until); ok {
		_, _ = s.run(ctx, "answers", s.script(setLua), keys, args...) // Failing tells
	}
}

// Confirm stores an answer as Finish does, and returns once as many replicas of
// Redis as configured have it (R18). [state.UnavailableError]: fewer have, or
// Redis is away. One that is too large is not kept, and no error.
func (s *Store) Confirm(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) error {
	keys, args, ok := s.answer(key, answer, until)
	if !ok || len(answer) > s.config.Bounds.MaxAnswerBytes || !until.After(s.now()) {
		return nil
	}
	_, err := s.lasting(ctx, "answers", s.script(setLua), keys, args...)
	return err
}

// setLua: KEYS answer, its owner's answers by their end, what each takes; ARGV what
// it is, until (ms), what it takes, most bytes of an owner, what the names of answers
// begin with, the rest of its name.
const setLua = clockLua + `
local function forget(name)
  local size = redis.call('HGET', KEYS[3], name)
  if not size then return end
  redis.call('HINCRBY', KEYS[3], 'bytes', -size)
  redis.call('HDEL', KEYS[3], name)
  redis.call('ZREM', KEYS[2], name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now, 'LIMIT', 0, 1000)) do forget(name) end
forget(ARGV[6])
while tonumber(redis.call('HGET', KEYS[3], 'bytes') or '0') + tonumber(ARGV[3]) > tonumber(ARGV[4]) do
  local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not first then break end
  redis.call('DEL', ARGV[5] .. first)
  forget(first)
end
redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
local lasts = redis.call('PTTL', KEYS[3])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[6])
redis.call('HSET', KEYS[3], ARGV[6], ARGV[3])
redis.call('HINCRBY', KEYS[3], 'bytes', ARGV[3])
local over = string.format('%.0f', math.max(tonumber(ARGV[2]), now + lasts))
redis.call('PEXPIREAT', KEYS[2], over)
redis.call('PEXPIREAT', KEYS[3], over)
return {'ok'}
`

// answerOverhead is about what Redis keeps beside an answer, in bytes.
const answerOverhead = 256

// answer is what setLua takes; false: the answer is larger than a share.
func (s *Store) answer(key ect.ReplayKey, answer []byte, until time.Time) (keys []string, args []any, ok bool) {
	most, size := s.config.Bounds.MaxAnswersBytesPerOwner, int64(len(answer)+answerOverhead)
	begin, rest := s.answerName(key)
	account := s.config.Prefix + "p:{" + digest(state.AnswerOwner(key)).hex() + "}:"
	return []string{begin + rest, account + "z", account + "h"}, []any{answer, milliseconds(until), size, most, begin, rest}, size <= most
}

// Load finds a stored answer, as [state.Answers.Load] does; while Redis is away
// there is none.
func (s *Store) Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool) {
	value, ok, _ := s.get(ctx, "", s.answerKey(key))
	return value, ok
}

// Last finds where a conversation stands, as [state.Conversations.Last] does;
// while Redis is away that is not known: [state.UnavailableError].
func (s *Store) Last(ctx context.Context, key string) (workflow string, id ect.ID, ok bool, err error) {
	if key == "" {
		return "", "", false, nil
	}
	value, ok, err := s.get(ctx, "conversations", s.conversationKey(key))
	if !ok {
		return "", "", false, err
	}
	workflow, rest, _ := strings.Cut(string(value), "\x00")
	last, code, _ := strings.Cut(rest, "\x00")
	if !s.vouch.holds(ctx, code, vouchTurn, key, workflow, last) {
		return "", "", false, nil
	}
	return workflow, ect.ID(last), true, nil
}

// Remember notes the last ECT of a conversation, as
// [state.Conversations.Remember] does; while Redis is away it does not.
func (s *Store) Remember(ctx context.Context, key, workflow string, id ect.ID) {
	if key == "" || strings.ContainsRune(workflow, 0) || strings.ContainsRune(string(id), 0) {
		return
	}
	most := max(1, s.config.Bounds.MaxConversations/state.ConversationShares)
	_, _ = s.run(ctx, "", s.script(rememberLua), []string{s.conversationKey(key), s.ownedKey(key)},
		workflow+"\x00"+string(id)+"\x00"+s.vouch.code(vouchTurn, key, workflow, string(id)), milliseconds(s.now().Add(s.config.Bounds.ConversationLifetime)), most) // Failing tells
}

// rememberLua: KEYS conversation, those of its owner by their end; ARGV where it stands, until
// (ms), most of one owner. Beyond that it drops those of the owner that were idle for longest; all
// are in one slot.
const rememberLua = `
redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[2], KEYS[1])
redis.call('PEXPIREAT', KEYS[2], ARGV[2])
local over = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[3])
if over > 0 then
  local old = redis.call('ZPOPMIN', KEYS[2], math.min(over, 1000))
  for i = 1, #old, 2 do redis.call('DEL', old[i]) end
end
return {'ok'}
`

// get is what stands under a key; false: nothing does, or Redis is away.
func (s *Store) get(ctx context.Context, what, key string) (value []byte, ok bool, err error) {
	err = s.within(ctx, what, func(bounded context.Context) (err error) {
		if value, err = s.client.Get(bounded, key).Bytes(); errors.Is(err, goredis.Nil) {
			return nil
		}
		ok = err == nil
		return err
	})
	return value, ok, err
}

func (s *Store) answerKey(key ect.ReplayKey) string {
	begin, rest := s.answerName(key)
	return begin + rest
}

// answerName is the key of an answer in two parts, the first of which all answers of
// its owner have: in a cluster they are in one slot.
func (s *Store) answerName(key ect.ReplayKey) (begin, rest string) {
	begin = s.config.Prefix + "a:"
	if s.sharded() {
		begin += "{" + digest(state.AnswerOwner(key)).hex() + "}:"
	}
	return begin, digest(string(key.Issuer), key.Workflow, string(key.ID)).hex()
}

func (s *Store) conversationKey(key string) string {
	return s.config.Prefix + "c:{" + ownerOf(key) + "}:" + digest(key).hex()
}

// ownedKey is under which the conversations of a conversation's owner are listed.
func (s *Store) ownedKey(key string) string { return s.config.Prefix + "o:{" + ownerOf(key) + "}" }

// ownerOf is whose a conversation is: the part of its key before the first NUL.
func ownerOf(key string) string {
	who, _, _ := strings.Cut(key, "\x00")
	return digest("owner", who).hex()
}
