package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/policy/limit"
)

// leaseLua: KEYS bucket; ARGV rate per second, burst, want, how far ahead (s). Tokens
// leave the bucket here, by the server's clock (R19). Of an empty bucket tokens leave
// that it has not earned yet, so that replicas which ask for more than there is have
// them in the order in which they asked.
const leaseLua = `
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local rate, burst, want, ahead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if kept[1] then
  tokens = math.min(burst, tonumber(kept[1]) + math.max(0, now - tonumber(kept[2])) * rate)
end
local granted, wait = math.min(want, math.floor(tokens + 0.000000001)), 0
if granted < 1 then
  granted = math.max(0, math.min(want, math.floor(tokens + ahead * rate)))
  wait = math.ceil((math.max(granted, 1) - tokens) / rate * 1000000)
end
tokens = tokens - granted
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((math.min(burst / rate, 31622400) + ahead) * 1000) + 1000)
return {granted, string.format('%.0f', wait)}
`

var _ limit.Bucket = (*Store)(nil)

// Lease takes up to want requests out of a source's shared bucket, as [limit.Bucket]
// says.
func (s *Store) Lease(ctx context.Context, source string, rate float64, burst, want int) (granted int, wait time.Duration, err error) {
	reply, err := s.run(ctx, "limits", s.script(leaseLua), []string{s.config.Prefix + "l:" + digest(source).hex()},
		strconv.FormatFloat(rate, 'g', -1, 64), burst, want, limit.LeaseAhead.Seconds())
	if err != nil {
		return 0, 0, err
	}
	granted, err = strconv.Atoi(word(reply, 0))
	micros, err2 := strconv.ParseInt(word(reply, 1), 10, 64)
	if err != nil || err2 != nil {
		return 0, 0, unavailable(errReply)
	}
	return granted, time.Duration(micros) * time.Microsecond, nil
}
