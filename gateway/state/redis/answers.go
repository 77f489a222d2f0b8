package redis

import (
	"context"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
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
// while Redis is away it stands nowhere, and its next turn starts a lineage.
func (s *Store) Last(ctx context.Context, key string) (workflow string, id ect.ID, ok bool) {
	if key == "" {
		return "", "", false
	}
	value, found := s.get(ctx, s.conversationKey(key))
	workflow, last, ok := strings.Cut(string(value), "\x00")
	if !found || !ok {
		return "", "", false
	}
	return workflow, ect.ID(last), true
}

// Remember notes the last ECT of a conversation, as
// [state.Conversations.Remember] does; while Redis is away it does not.
func (s *Store) Remember(ctx context.Context, key, workflow string, id ect.ID) {
	if key == "" || strings.ContainsRune(workflow, 0) {
		return
	}
	value := workflow + "\x00" + string(id)
	s.set(ctx, s.conversationKey(key), []byte(value), s.now().Add(s.config.Bounds.ConversationLifetime))
}

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

func (s *Store) conversationKey(key string) string { return s.config.Prefix + "c:" + digest(key).hex() }
