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
// or full it is not kept.
func (s *Store) Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	if len(answer) > s.config.Bounds.MaxAnswerBytes || !until.After(s.now()) {
		return
	}
	s.set(ctx, s.answerKey(key), answer, until)
}

// Confirm stores an answer as Finish does, and returns once as many replicas of
// Redis as configured have it (R18). [state.UnavailableError]: fewer have, or
// Redis is away. One that is too large is not kept, and no error.
func (s *Store) Confirm(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) error {
	if len(answer) > s.config.Bounds.MaxAnswerBytes || !until.After(s.now()) {
		return nil
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	keys, args := []string{s.answerKey(key)}, []any{answer, milliseconds(until)}
	if s.config.Wait == 0 {
		_, err = script(setLua).Run(bounded, s.client, keys, args...).Slice()
	} else {
		_, err = s.confirmed(bounded, script(setLua), keys, args)
	}
	return failure(ctx, "answers", err)
}

// setLua: KEYS answer; ARGV what it is, until (ms).
const setLua = `
redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
return {'ok'}
`

// Load finds a stored answer, as [state.Answers.Load] does; while Redis is away
// there is none.
func (s *Store) Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool) {
	return s.get(ctx, s.answerKey(key))
}

// Last finds where a conversation stands, as [state.Conversations.Last] does;
// while Redis is away nobody knows: [state.UnavailableError].
func (s *Store) Last(ctx context.Context, key string) (workflow string, id ect.ID, ok bool, err error) {
	if key == "" {
		return "", "", false, nil
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return "", "", false, err
	}
	defer cancel()
	value, err := s.client.Get(bounded, s.conversationKey(key)).Bytes()
	if errors.Is(err, goredis.Nil) {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, failure(ctx, "conversations", err)
	}
	workflow, last, ok := strings.Cut(string(value), "\x00")
	if !ok {
		return "", "", false, nil
	}
	return workflow, ect.ID(last), true, nil
}

// Remember notes the last ECT of a conversation, as
// [state.Conversations.Remember] does; while Redis is away it does not.
func (s *Store) Remember(ctx context.Context, key, workflow string, id ect.ID) {
	if key == "" || strings.ContainsRune(workflow, 0) {
		return
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return
	}
	defer cancel()
	owned, own := s.ownedKey(key), s.conversationKey(key)
	most := max(1, s.config.Bounds.MaxConversations/state.ConversationShares)
	_ = script(rememberLua).Run(bounded, s.client, []string{own, owned},
		workflow+"\x00"+string(id), milliseconds(s.now().Add(s.config.Bounds.ConversationLifetime)), most).Err() // Failing tells
}

// rememberLua: KEYS conversation, those of its owner by their end; ARGV where it
// stands, until (ms), most of one owner. Beyond that the owner's own that rested
// longest make room; all are in one slot.
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

func (s *Store) set(ctx context.Context, key string, value []byte, until time.Time) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return
	}
	defer cancel()
	_ = s.client.Do(bounded, "SET", key, value, "PXAT", milliseconds(until)).Err() // Failing tells
}

func (s *Store) get(ctx context.Context, key string) ([]byte, bool) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, false
	}
	defer cancel()
	value, err := s.client.Get(bounded, key).Bytes()
	return value, err == nil
}

func (s *Store) answerKey(key ect.ReplayKey) string {
	return s.config.Prefix + "a:" + digest(string(key.Issuer), key.Workflow, string(key.ID)).hex()
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
