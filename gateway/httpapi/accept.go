package httpapi

import (
	"strconv"
	"strings"
)

// preferred is the offer that a client likes best (RFC 9110, section 12.5.1): by
// the quality of the most specific range that holds it, ties in our order.
// Empty: it takes none. Without the field everything is acceptable.
func preferred(fields []string, offers ...string) string {
	ranges := acceptable(fields)
	if len(ranges) == 0 {
		return offers[0]
	}
	best, quality := "", 0
	for _, offer := range offers {
		if q := qualityOf(ranges, offer); q > quality {
			best, quality = offer, q
		}
	}
	return best
}

// acceptRange is one member of Accept; quality is in thousandths.
type acceptRange struct {
	media   string
	quality int
}

func acceptable(fields []string) []acceptRange {
	const most = 64 // more is nobody's preference
	var out []acceptRange
	for _, field := range fields {
		for member := range strings.SplitSeq(field, ",") {
			media, params, _ := strings.Cut(member, ";")
			media = strings.ToLower(strings.TrimSpace(media))
			if media == "" || len(out) == most {
				continue
			}
			out = append(out, acceptRange{media, quality(params)})
		}
	}
	return out
}

// quality of a range; one that is not readable makes it the least wanted.
func quality(params string) int {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		whole, fraction, _ := strings.Cut(strings.TrimSpace(value), ".")
		n, err := strconv.ParseUint(whole+(fraction + "000")[:3], 10, 16)
		if err != nil || n > 1000 || len(fraction) > 3 {
			return 0
		}
		return int(n)
	}
	return 1000
}

func qualityOf(ranges []acceptRange, media string) int {
	kind, _, _ := strings.Cut(media, "/")
	found, specific := 0, 0
	for _, r := range ranges {
		s := 0
		switch r.media {
		case media:
			s = 3
		case kind + "/*":
			s = 2
		case "*/*":
			s = 1
		}
		if s > specific {
			found, specific = r.quality, s
		}
	}
	return found
}
